"""Agreement with a published result, against tables and arithmetic done by hand."""

import pytest

from vernier import recipes
from vernier.config import Config, Published, Recipe, override
from vernier.measure.agreement import agreement, agreement_lines, prediction_interval
from vernier.measure.estimates import t_quantile
from vernier.records.run import EvalResult


@pytest.mark.parametrize(
    ("freedom", "tabled"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (14, 2.145), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, tabled: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(tabled, abs=6e-4)


def test_the_interval_by_hand() -> None:
    low, high = prediction_interval(Published(mean=77.0, sd=0.1, n=5)) or (0, 0)
    half = 2.77645 * 0.1 * (6 / 5) ** 0.5
    assert (low, high) == pytest.approx((77 - half, 77 + half), abs=1e-5)
    assumed = prediction_interval(Published(mean=77.0, sd=0.1))
    assert assumed == pytest.approx((77 - 4.302653 * 0.1 * (4 / 3) ** 0.5, 77 + 4.302653 * 0.1 * (4 / 3) ** 0.5))
    assert prediction_interval(Published(mean=77.0)) is None


def _config(*published: Published, **changes: object) -> Config:
    config = Config(recipe=Recipe(name="r", global_batch=2048, published=published))
    for path, value in changes.items():
        config = override(config, path.replace("__", "."), value)
    return config


def _result(top1: float, samples: int = 50_000) -> EvalResult:
    return EvalResult(samples=samples, figures={"top1": top1})


@pytest.mark.parametrize(("top1", "verdict"), [(77.2, "inside"), (76.0, "below"), (78.0, "above")])
def test_inside_above_and_below(top1: float, verdict: str) -> None:
    config = _config(Published(mean=77.0, sd=0.1, n=5))
    outcome = agreement(config, _result(top1), config.recipe)
    assert outcome is not None
    assert outcome.verdict == verdict
    assert f"{top1:.2f} is {verdict} the 95 % prediction interval 76.70 to 77.30" in agreement_lines(outcome)[0]
    assert "assum" not in agreement_lines(outcome)[0]


def test_unknown_runs_are_assumed_and_line() -> None:
    config = _config(Published(mean=77.0, sd=0.1))
    outcome = agreement(config, _result(77.0), None)
    assert outcome is not None
    assert outcome.runs_assumed == 3
    assert "assuming 3 runs, because their number was not published" in agreement_lines(outcome)[0]


def test_without_a_spread_there_is_only_a_difference() -> None:
    outcome = agreement(_config(Published(mean=75.9)), _result(76.4), None)
    assert outcome is not None
    assert outcome.interval is None
    assert "no spread published: difference +0.50" in agreement_lines(outcome)[0]


def test_another_validation_set_is_not_compared() -> None:
    outcome = agreement(_config(Published(mean=75.9, sd=0.1)), _result(99.0, samples=160), None)
    assert outcome is not None
    assert "not comparable: measured on 160 images, published on 50,000" in agreement_lines(outcome)[0]


def test_the_result_of_the_same_arithmetic_is_taken() -> None:
    both = (Published(mean=77.23, precision="mixed"), Published(mean=77.08, precision="fp32"))
    for precision, mean in (("fp32", 77.08), ("bf16", 77.23), ("fp16", 77.23), ("tf32", 77.08)):
        outcome = agreement(_config(*both, machine__precision=precision), _result(77.0), None)
        assert outcome is not None
        assert outcome.published.mean == mean


def test_the_result_of_the_nearest_batch_is_taken() -> None:
    """Habana's ResNeXt: 79.2 % on one card at 128, 79.02 % on eight at 1,024."""
    recipe = recipes.get("habana-tf-resnext101-90e")
    for batch, mean in ((128, 79.2), (256, 79.2), (512, 79.02), (1024, 79.02)):
        config = override(Config(recipe=recipe), "recipe.global_batch", batch)
        outcome = agreement(override(config, "machine.precision", "bf16"), _result(79.0), recipe)
        assert outcome is not None
        assert outcome.published.mean == mean
        assert any("global_batch" in line for line in outcome.differs) == (batch in (256, 512))
    assert "8 x Gaudi, global batch 1,024, mixed" in agreement_lines(outcome)[0]


def test_top5_is_recorded_and_top1_compared() -> None:
    recipe = recipes.get("habana-resnet50-sgd-1")
    outcome = agreement(Config(recipe=recipe), EvalResult(samples=50_000, figures={"top1": 75.0, "top5": 92.0}), recipe)
    assert outcome is not None
    assert (outcome.metric, outcome.published.mean) == ("top1", 75.85)


def test_what_was_changed_is_named() -> None:
    reference = _config(Published(mean=77.0, precision="mixed")).recipe
    changed = _config(
        *reference.published, global_batch=256, schedule__epochs=10, seed=7, data__source="here", limits__max_steps=5
    )
    outcome = agreement(changed, _result(77.0), reference)
    assert outcome is not None
    line = agreement_lines(outcome)[1]
    for part in (
        "global_batch 2048 -> 256",
        "schedule.epochs 90.0 -> 10.0",
        "stopped at 5 steps",
        "precision mixed -> fp32",
        "loader",
    ):
        assert part in line
    assert "seed" not in line
    assert "data.source" not in line


def test_nothing_published_nothing_line() -> None:
    assert agreement(_config(), _result(77.0), None) is None
    assert agreement(_config(Published(mean=77.0)), None, None) is None
