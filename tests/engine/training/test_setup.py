"""From a configuration to a job: what is built, what is noted, and what is refused before anything is written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_training import events_of, run_training, tiny_config, tiny_detector_config
from vernier import recipes
from vernier.config import Augment, Config, Data, Ema, Eval, Model, Schedule
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.engine.training import setup
from vernier.engine.training.setup import Job, prepare
from vernier.errors import ConfigError, TooLittleMemory
from vernier.records.events import StartEvent


@pytest.fixture
def prepared(shapes: Path) -> Any:
    """`prepared(**recipe)`: a job that is closed at the end of the test."""
    jobs: list[Job] = []

    def build(**recipe: Any) -> Job:
        jobs.append(prepare(tiny_config(shapes, **recipe)))
        return jobs[-1]

    yield build
    for job in jobs:
        job.close()


def test_changes_to_the_annotations_are_noted_before_training(real_data: Callable[[str], Path]) -> None:
    recipe = recipes.get("ssd-shapes-quick")
    recipe = replace(recipe, data=replace(recipe.data, source=str(real_data("bccd"))))
    job = prepare(Config(recipe=recipe))
    job.close()
    assert "1 box without area inside the image left out" in job.notes
    assert job.train_source.classes == ("Platelets", "RBC", "WBC")


def test_a_job_trains_every_image_of_an_epoch_once(prepared: Callable[..., Job]) -> None:
    job = prepared()
    requests = list(job.requests(0, job.derived.steps_per_epoch))
    assert {epoch for epoch, _ in requests} == {0}
    assert sorted(int(i) for _, indices in requests for i in indices) == list(range(160))


def test_requests_can_start_in_the_middle_of_an_epoch(prepared: Callable[..., Job]) -> None:
    job = prepared()
    whole, rest = list(job.requests(0, 20)), list(job.requests(13, 20))
    assert [epoch for epoch, _ in rest] == [1] * 7
    assert all((a[1] == b[1]).all() for a, b in zip(whole[13:], rest, strict=True))


def test_without_evaluation_or_averaging_neither_is_built(prepared: Callable[..., Job]) -> None:
    plain, full = prepared(eval=Eval(every_epochs=0)), prepared(ema=Ema(decay=0.9))
    assert plain.evaluator is None
    assert plain.val_source is None
    assert plain.average is None
    assert len(plain.bad_images()) == 1
    assert full.evaluator is not None
    assert full.average is not None
    assert len(full.bad_images()) == 2


def test_the_way_images_are_loaded_is_described(prepared: Callable[..., Job]) -> None:
    loading = prepared().loading
    assert (loading.backend, loading.source, loading.cache) == ("native", "FolderSource", "memory")
    assert loading.resize == "torch antialiased bilinear, uint8"
    assert 0 < (loading.cache_needs_bytes or 0) < (loading.cache_limit_bytes or 0)


def test_scaled_decoding_switches_the_cache_off(shapes: Path, prepared: Callable[..., Job]) -> None:
    data = replace(tiny_config(shapes).recipe.data, scaled_decode=True)
    loading = prepared(data=data, augment=Augment(crop="random")).loading
    assert (loading.scaled_decode, loading.cache) == (True, "off")


def test_frozen_layers_do_not_learn_and_are_noted(prepared: Callable[..., Job]) -> None:
    job = prepared(model=Model(name="resnet8-small", width=8, freeze=("layer1",)))
    frozen = [name for name, p in job.model.named_parameters() if not p.requires_grad]
    assert frozen
    assert all(name.startswith("layer1") for name in frozen)
    assert any(f"{len(frozen)} of" in note and "frozen (layer1)" in note for note in job.notes)


def test_the_first_images_are_those_of_the_first_batch(prepared: Callable[..., Job]) -> None:
    job = prepared()
    first = job.first_images()
    (batch,) = job.loader.batches([(0, job.order.indices(0, 0, 0))])
    assert first.images.shape == (16, 32, 32, 3)
    assert torch.equal(torch.from_numpy(first.images), batch.images.permute(0, 2, 3, 1))
    assert first.classes == tuple(job.train_source.classes[label] for label in batch.targets)


def test_the_first_images_of_a_detector_show_their_boxes_as_augmented(tmp_path: Path) -> None:
    """What TensorBoard shows: the boxes that the network learns, on the images that it sees."""
    recipe = recipes.get("ssd-shapes-quick")
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=16, val=8, size_px=64, seed=5))
    small = replace(recipe.data, source=str(boxes), image_px=64, eval_px=64, eval_short_side_px=64)
    job = prepare(Config(recipe=replace(recipe, data=small, global_batch=8)))
    shown = torch.from_numpy(job.first_images().images)
    (batch,) = job.loader.batches([(0, job.order.indices(0, 0, 0))])
    plain = batch.images.permute(0, 2, 3, 1)
    changed = (shown != plain).any(dim=3)
    for image, ltrb, valid in zip(changed, batch.targets.ltrb, batch.targets.valid, strict=True):
        left, top, right, bottom = (64 * ltrb[valid]).round().int().unbind(1)
        edges = torch.zeros(64, 64, dtype=torch.bool)
        for x0, y0, x1, y1 in zip(left, top, right, bottom, strict=True):
            edges[y0:y1, x0], edges[y0:y1, x1 - 1], edges[y0, x0:x1], edges[y1 - 1, x0:x1] = True, True, True, True
        assert not (image & ~edges).any()  # nothing but edges is drawn
        assert image.sum() > 0.9 * edges.sum()  # some pixels have that colour anyway
    job.close()


_IMAGES_ON_RGPU = """
import json, sys
from pathlib import Path
from tests.device_reader import DeviceTrainReader
from tests.tiny_training import tiny_config
from vernier.config import override
from vernier.tasks import classification
from vernier.engine.training.setup import prepare
from vernier_rgpu import Rgpu

DeviceTrainReader.torch_device = Rgpu().torch_device(0)
results = []
for device in ("cpu", "rgpu"):
    if device == "rgpu":
        classification.TrainReader = DeviceTrainReader
    job = prepare(override(tiny_config(Path(sys.argv[1])), "machine.device", device))
    images = job.first_images().images
    loss, _ = job.step(0, job.loader.batches(job.requests(0, 1)))
    results.append([images.shape, images.tolist(), float(loss)])
    job.close()
print(json.dumps(results))
"""


@pytest.mark.slow
def test_the_first_images_can_live_on_a_device(shapes: Path, on_rgpu: Callable[..., Any]) -> None:
    """The image samples of TensorBoard, with a reader that decodes on the device."""
    (shape, images, loss), on_device = on_rgpu(_IMAGES_ON_RGPU, shapes)
    assert shape == [16, 32, 32, 3]
    assert on_device[:2] == [shape, images]
    assert on_device[2] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": Model(name="resnet8-small", num_classes=7)}, "model.num_classes = 7, but the data has 10 classes"),
        ({"model": Model(name="resnet9000")}, "resnet9000"),
        ({"global_batch": 4096}, "more than the 160 training images"),
        ({"data": Data(source="/nowhere")}, "does not exist"),
        ({"data": Data(source="")}, "data.source=PATH"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    shapes: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_training(tiny_config(shapes, **change), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_shuffling_shards_needs_shards(shapes: Path) -> None:
    config = tiny_config(shapes)
    data = replace(config.recipe.data, shuffle_shards=2)
    with pytest.raises(ConfigError, match=r"is not made of shards. Set data.shuffle_shards=0"):
        prepare(replace(config, recipe=replace(config.recipe, data=data)))


def test_validation_data_with_other_classes_is_refused_by_name(tmp_path: Path) -> None:
    data = make_shapes(tmp_path / "shapes", ShapesSpec(train=20, val=20, size_px=32))
    removed = sorted(p for p in (data / "val").iterdir() if p.is_dir())[0]
    removed.rename(removed.with_name("zebra"))
    with pytest.raises(ConfigError, match=rf"different classes: 10 and 10; not in both: {removed.name}, zebra"):
        prepare(tiny_config(data))


def test_a_batch_that_cannot_fit_is_refused_with_the_one_that_does(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(shapes, eval=Eval(every_epochs=0))
    monkeypatch.setattr(setup, "available_bytes", lambda: 2**20)
    monkeypatch.setattr(setup, "resident_bytes", lambda: 200 * 2**20)
    with pytest.raises(TooLittleMemory, match=r"needs about .* GiB of memory per process"):
        prepare(config)
    tried = prepare(replace(config, machine=replace(config.machine, check_memory=False)))
    tried.close()
    assert any("If memory runs out" in warning for warning in tried.warnings)


def test_the_prediction_is_recorded_beside_the_measured_peak(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, schedule=Schedule(epochs=0.1)), tmp_path)
    (start,) = events_of(outcome.run, StartEvent)
    assert start.memory is not None
    memory = outcome.summary.memory
    assert memory is not None
    assert memory.predicted_bytes == start.memory.peak_bytes
    assert memory.measured_bytes is not None
    assert memory.measured_bytes > 100 * 2**20


@pytest.mark.parametrize("detector", [False, True])
def test_weights_are_the_same_with_activation_checkpointing(
    shapes: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, detector: bool
) -> None:
    """With stochastic depth, ghost batch norm, an average and accumulation: every tensor of the checkpoint."""
    if detector:
        boxes = make_shapes(
            tmp_path_factory.mktemp("boxes"), ShapesSpec(kind="detect", train=16, val=4, size_px=96, seed=3)
        )
        config = tiny_detector_config(boxes)
    else:
        model = Model(name="resnet8-small", width=16, drop_path=0.5, batch_norm_images=4)
        config = tiny_config(shapes, model=model, ema=Ema(decay=0.9))
        config = replace(config, machine=replace(config.machine, accumulation=2))
    config = replace(
        config,
        recipe=replace(config.recipe, eval=Eval(every_epochs=0)),
        limits=replace(config.limits, max_steps=2),
    )
    digests = []
    for recomputes in (False, True):
        machine = replace(config.machine, activation_checkpointing=recomputes)
        run = run_training(replace(config, machine=machine), tmp_path / str(recomputes)).run
        files = sorted(run.checkpoints.committed()[-1].path.glob("*.safetensors"))
        digests.append([(file.name, file.read_bytes()) for file in files])
    assert len(digests[0]) >= 2
    assert digests[0] == digests[1]
