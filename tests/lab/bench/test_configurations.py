from vernier.config import Config, override, to_dict
from vernier.lab.bench.configurations import at_final_size, configurations_of, default_batch
from vernier.lab.records.bench import BenchRequest, Layout
from vernier.references import use

CONFIG = to_dict(Config())


def test_every_combination_is_a_configuration_named_by_what_varies() -> None:
    request = BenchRequest(what="train", config=CONFIG, batches=(2, 4), precisions=("fp32", "bf16"))
    configurations = configurations_of(request)
    assert [a.name for a in configurations] == [
        "batch=2 precision=fp32",
        "batch=2 precision=bf16",
        "batch=4 precision=fp32",
        "batch=4 precision=bf16",
    ]
    assert configurations[1].request.config["machine"]["precision"] == "bf16"
    assert configurations[2].request.config["recipe"]["global_batch"] == 4


def test_a_weak_layout_multiplies_the_batch_and_a_strong_one_does_not() -> None:
    layouts = (Layout(procs=1), Layout(procs=2, apart=True))
    weak = BenchRequest(what="train", config=CONFIG, batches=(4,), layouts=layouts, scaling="weak")
    assert [a.request.config["recipe"]["global_batch"] for a in configurations_of(weak)] == [4, 8]
    assert [a.request.apart for a in configurations_of(weak)] == [False, True]
    strong = BenchRequest(what="train", config=CONFIG, batches=(4,), layouts=layouts, scaling="strong")
    assert len({a.request.config["recipe"]["global_batch"] for a in configurations_of(strong)}) == 1


def test_the_default_batch_is_the_recipes_as_far_as_one_device_takes_it() -> None:
    large, small = override(Config(), "global_batch", 2048), override(Config(), "global_batch", 16)
    assert default_batch(small, "train", "cpu") == (16, "batch 16: the global batch of the recipe")
    batch, note = default_batch(large, "train", "cpu")
    assert (batch, note) == (
        32,
        "batch 32: the default on a CPU; the global batch of the recipe is 2,048; "
        f"{use('batch', slot='N')} sets another",
    )
    assert default_batch(large, "train", "cuda")[0] == 256
    assert default_batch(large, "train", "cpu", devices=4)[0] == 128  # strong scaling: in total
    assert default_batch(large, "infer", "cpu")[0] == 32


def test_images_that_grow_are_measured_at_their_last_size() -> None:
    growing = override(override(Config(), "augment.start_px", 160), "data.image_px", 192)
    fixed, notes = at_final_size(growing)
    assert fixed.recipe.augment.start_px is None
    assert notes == ["images grow from 160 to 192 px during training: measured at 192 px"]
    (configuration,) = configurations_of(BenchRequest(what="train", config=to_dict(growing)))
    assert configuration.request.config["recipe"]["augment"]["start_px"] is None
    assert at_final_size(Config()) == (Config(), [])
