"""Agreement with a published result, against tables and arithmetic done by hand."""

from dataclasses import replace

import pytest

from vernier import recipes
from vernier.config import Config, Limits, Published, Recipe, override
from vernier.measure.agreement import _agreement, _prediction_interval, agreement_lines, assess
from vernier.measure.estimates import _t_quantile
from vernier.records.run import EvalResult, RunSummary


@pytest.mark.parametrize(
    ("freedom", "tabled"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (14, 2.145), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, tabled: float) -> None:
    assert _t_quantile(0.95, freedom) == pytest.approx(tabled, abs=6e-4)


def test_the_interval_by_hand() -> None:
    low, high = _prediction_interval(Published(mean=77.0, sd=0.1, n=5)) or (0, 0)
    half = 2.77645 * 0.1 * (5 / 4) ** 0.5 * (6 / 5) ** 0.5 + 0.05
    assert (low, high) == pytest.approx((77 - half, 77 + half), abs=1e-5)
    assumed = _prediction_interval(Published(mean=77.0, sd=0.1))
    half = 4.302653 * 0.1 * (3 / 2) ** 0.5 * (4 / 3) ** 0.5 + 0.05
    assert assumed == pytest.approx((77 - half, 77 + half))
    assert _prediction_interval(Published(mean=77.0)) is None


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
    outcome = _agreement(config, _result(top1), config.recipe)
    assert outcome is not None
    assert outcome.verdict == verdict
    assert f"{top1:.2f} is {verdict} the 95 % prediction interval 76.61 to 77.39" in agreement_lines(outcome)[0]
    assert "assum" not in agreement_lines(outcome)[0]


def test_unknown_runs_are_assumed_and_line() -> None:
    config = _config(Published(mean=77.0, sd=0.1))
    outcome = _agreement(config, _result(77.0), None)
    assert outcome is not None
    assert outcome.runs_assumed == 3
    assert "assuming 3 runs, because their number was not published" in agreement_lines(outcome)[0]


def test_without_a_spread_there_is_only_a_difference() -> None:
    outcome = _agreement(_config(Published(mean=75.9)), _result(76.4), None)
    assert outcome is not None
    assert outcome.interval is None
    assert "no spread published: difference +0.50" in agreement_lines(outcome)[0]


def test_another_validation_set_is_not_compared() -> None:
    outcome = _agreement(_config(Published(mean=75.9, sd=0.1)), _result(99.0, samples=160), None)
    assert outcome is not None
    assert "not comparable: measured on 160 images, published on 50,000" in agreement_lines(outcome)[0]


def test_the_result_of_the_same_arithmetic_is_taken() -> None:
    both = (Published(mean=77.23, precision="mixed"), Published(mean=77.08, precision="fp32"))
    for precision, mean in (("fp32", 77.08), ("bf16", 77.23), ("fp16", 77.23), ("tf32", 77.08)):
        outcome = _agreement(_config(*both, machine__precision=precision), _result(77.0), None)
        assert outcome is not None
        assert outcome.published.mean == mean


def test_the_result_of_the_nearest_batch_is_taken() -> None:
    """Habana's ResNeXt: 79.2 % on one card at 128, 79.02 % on eight at 1,024."""
    recipe = recipes.get("habana-tf-resnext101-90e")
    for batch, mean in ((128, 79.2), (256, 79.2), (512, 79.02), (1024, 79.02)):
        config = override(Config(recipe=recipe), "recipe.global_batch", batch)
        outcome = _agreement(override(config, "machine.precision", "bf16"), _result(79.0), recipe)
        assert outcome is not None
        assert outcome.published.mean == mean
        assert any("global_batch" in line for line in outcome.differs) == (batch in (256, 512))
    assert "8 x Gaudi, global batch 1,024, mixed" in agreement_lines(outcome)[0]


def test_top5_is_recorded_and_top1_compared() -> None:
    recipe = recipes.get("habana-resnet50-sgd-1")
    outcome = _agreement(
        Config(recipe=recipe), EvalResult(samples=50_000, figures={"top1": 75.0, "top5": 92.0}), recipe
    )
    assert outcome is not None
    assert (outcome.metric, outcome.published.mean) == ("top1", 75.85)


def test_what_was_changed_is_named() -> None:
    reference = _config(Published(mean=77.0, precision="mixed")).recipe
    changed = _config(
        *reference.published, global_batch=256, schedule__epochs=10, seed=7, data__source="here", limits__max_steps=5
    )
    outcome = _agreement(changed, _result(77.0), reference)
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
    assert _agreement(_config(), _result(77.0), None) is None
    assert _agreement(_config(Published(mean=77.0)), None, None) is None


def test_a_spread_that_was_rounded_to_nothing_is_half_a_digit() -> None:
    low, high = _prediction_interval(Published(mean=76.3, sd=0.0, n=5)) or (0, 0)
    assert high - low > 0.4


def test_the_power_of_an_unknown_number_of_runs_is_said() -> None:
    config = _config(Published(mean=77.0, sd=0.1))
    outcome = _agreement(config, _result(77.0), config.recipe)
    assert outcome is not None
    assert "found in 12 to 45 % of cases" in agreement_lines(outcome)[0]


CONFIG = Config(recipe=Recipe(name="r", published=(Published(mean=77.0, sd=0.1, n=5),)))
SUMMARY = RunSummary(result=EvalResult(samples=50_000, figures={"top1": 77.1}))


def test_a_finished_run_is_compared_with_the_published_accuracy() -> None:
    assessed = assess(CONFIG, "finished", SUMMARY, reference=CONFIG.recipe)
    assert assessed.agreement is not None
    assert assessed.agreement.verdict == "inside"
    assert assessed.published_speeds is None
    assert replace(assessed, agreement=None) == SUMMARY


@pytest.mark.parametrize(
    ("status", "config", "summary"),
    [
        ("stopped", CONFIG, SUMMARY),
        ("finished", replace(CONFIG, limits=Limits(smoke=True)), SUMMARY),
        ("finished", CONFIG, replace(SUMMARY, rollbacks=1)),
        ("finished", CONFIG, RunSummary()),
    ],
    ids=["stopped", "smoke", "rolled back", "not evaluated"],
)
def test_others_are_not(status: str, config: Config, summary: RunSummary) -> None:
    assert assess(config, status, summary, reference=None) == summary
