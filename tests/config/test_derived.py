"""What follows from the settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import names_given, what_works
from vernier.config import Config, Eval, Machine, Recipe, Schedule, derive, describe_target, override
from vernier.errors import ConfigError
from vernier.optim.kinds.sgd import Sgd
from vernier.references import references


def _config(
    *, global_batch: int, procs: int = 1, accumulation: int = 1, process_batch: int | None = None, **optim: object
) -> Config:
    return Config(
        recipe=Recipe(global_batch=global_batch, optim=Sgd(**optim), schedule=Schedule(epochs=2.5)),  # type: ignore[arg-type]
        machine=Machine(procs=procs, accumulation=accumulation, process_batch=process_batch),
    )


def _refusal(config: Config, train_samples: int = 1000) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        derive(config, train_samples=train_samples)
    return refused.value


@given(procs=st.integers(1, 16), accumulation=st.integers(1, 8), per=st.integers(1, 64), samples=st.integers(1, 10_000))
def test_derived_values_multiply_back(procs: int, accumulation: int, per: int, samples: int) -> None:
    total = procs * accumulation * per
    config = _config(global_batch=total, procs=procs, accumulation=accumulation)
    if samples < total:
        assert _refusal(config, samples).given["global_batch"] == total
        return
    derived = derive(config, train_samples=samples)
    assert derived.process_batch * derived.accumulation * derived.world == total
    assert derived.steps_per_epoch * total <= samples < (derived.steps_per_epoch + 1) * total
    assert (
        derive(_config(global_batch=total, procs=procs, process_batch=per), train_samples=samples).accumulation
        == accumulation
    )


def test_a_batch_that_does_not_divide_says_what_does() -> None:
    error = _refusal(_config(global_batch=100, procs=3, accumulation=2))
    assert error.given["global_batch"] == 100
    assert error.works == [("global_batch", 96), ("global_batch", 102)]
    assert "machine.process_batch" in _refusal(_config(global_batch=100, procs=3, process_batch=20)).given
    error = _refusal(_config(global_batch=120, procs=3, process_batch=20, accumulation=4))
    assert error.given["machine.accumulation"] == 4


def test_learning_rate_scales_with_the_batch_only_when_asked() -> None:
    assert derive(_config(global_batch=512, lr=0.256, lr_batch=256), train_samples=1000).lr == pytest.approx(0.512)
    assert derive(_config(global_batch=512, lr=0.256), train_samples=1000).lr == 0.256


@given(batch=st.integers(1, 64), samples=st.integers(64, 10_000))
def test_filling_the_last_batch_rounds_the_steps_up(batch: int, samples: int) -> None:
    config = _config(global_batch=batch)
    filled = override(config, "recipe.data.last_batch", "fill")
    assert derive(config, train_samples=samples).steps_per_epoch == samples // batch
    assert derive(filled, train_samples=samples).steps_per_epoch == -(-samples // batch)


def test_steps_may_exceed_the_epochs_and_the_schedule_stays() -> None:
    config = override(_config(global_batch=10), "schedule.steps", 70)
    derived = derive(config, train_samples=100)
    assert (derived.steps_per_epoch, derived.total_steps, derived.stop_step) == (10, 25, 70)
    assert derive(override(config, "limits.max_steps", 5), train_samples=100).stop_step == 5
    assert derive(override(config, "schedule.steps", 7), train_samples=100).stop_step == 7


@pytest.mark.parametrize(("images", "steps"), [(40, 4), (117, 11), (250, 25)])
def test_an_epoch_has_the_images_it_is_given(images: int, steps: int) -> None:
    derived = derive(override(_config(global_batch=10), "data.epoch_images", images), train_samples=100)
    assert (derived.steps_per_epoch, derived.total_steps) == (steps, round(2.5 * steps))


def test_an_epoch_smaller_than_a_batch_is_refused() -> None:
    config = override(_config(global_batch=10), "data.epoch_images", 9)
    error = _refusal(config, 100)
    assert (error.given, error.works) == ({"global_batch": 10, "data.epoch_images": 9}, [("global_batch", 8)])


def test_a_target_that_ends_the_training_early_is_described_with_the_way_to_leave_it_out() -> None:
    text = describe_target(Recipe(eval=Eval(target_ap=0.23)))
    assert text.startswith("training ends once AP reaches 0.23 (eval.target_ap)")
    assert [(each.role, each.name, each.value) for each in references(text)] == [("use", "eval.target_ap", None)]
    assert "top-1 reaches 75.9 % (eval.target_top1)" in describe_target(Recipe(eval=Eval(target_top1=75.9)))
    assert describe_target(Recipe()) == describe_target(Recipe(eval=Eval(target_ap=0.23, every_epochs=0))) == ""


def _exact(global_batch: int, procs: int = 1, shards: int | None = None, **machine: int) -> Config:
    return Config(
        recipe=Recipe(global_batch=global_batch, virtual_shards=shards),
        machine=Machine(procs=procs, reduction="exact", **machine),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("batch", "shards"), [(24, 12), (96, 12), (256, 8), (18, 6), (20, 4), (9, 3), (10, 2), (7, 1)])
def test_virtual_shards_follow_from_the_batch_alone(batch: int, shards: int) -> None:
    assert derive(_exact(batch), train_samples=1000).virtual_shards == shards
    assert derive(_config(global_batch=batch), train_samples=1000).virtual_shards is None


@pytest.mark.parametrize("procs", [1, 2, 3, 4, 6, 12])
def test_processes_share_out_the_virtual_shards(procs: int) -> None:
    derived = derive(_exact(96, procs), train_samples=1000)
    assert (derived.process_batch, derived.accumulation, derived.world) == (8, 12 // procs, procs)
    assert derive(_exact(96, procs, accumulation=12 // procs, process_batch=8), train_samples=1000) == derived


def test_virtual_shards_that_do_not_divide_say_what_does() -> None:
    for config, names, works in (
        (_exact(100, shards=12), "global_batch virtual_shards", "global_batch=96 global_batch=108 virtual_shards"),
        (
            _exact(60, procs=5),
            "machine.procs machine.reduction virtual_shards",
            "machine.procs=1, 2, 3, 4, 6, 12 virtual_shards=15",
        ),
        (_exact(256, procs=3), "machine.procs machine.reduction virtual_shards", "machine.procs=1, 2, 4, 8"),
        (_exact(24, procs=2, accumulation=4), "machine.accumulation virtual_shards", ""),
        (_exact(96, process_batch=4), "machine.process_batch", "virtual_shards=24"),
    ):
        error = _refusal(config)
        assert (names_given(error), what_works(error)) == (names, works)
