"""Published accuracy and speed in the summary of a run: for runs that can be compared, and no others."""

from dataclasses import replace

import pytest

from vernier.config import Config, Limits, Published, Recipe
from vernier.measure.assessment import assess
from vernier.records.run import EvalResult, RunSummary

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
