"""Which subject is which: what ran in it, and names by what differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.examples import RAN as TRAINED
from vernier.report.logs.model import RunLog
from vernier.report.page.identity import heading, parts_of_log, parts_of_record, unique_names

RAN = replace(TRAINED, kind="infer", batch_per_device=1)


def test_the_heading_has_network_size_batch_and_data() -> None:
    arms = [RAN, replace(RAN, batch_per_device=32)]
    assert heading(parts_of_record(arms)) == "resnet50 · 224 px · batch 1, 32 · synthetic"
    assert parts_of_record(arms)["precision"] == "fp32"
    assert parts_of_record([]) == {}
    assert heading({}) == ""


def test_a_log_says_what_it_has_and_what_it_has_not() -> None:
    settings = {"submission_benchmark": "ssd", "global_batch_size": 912}
    parts = parts_of_log(RunLog(format="mllog", path=Path("x"), settings=settings, train_samples=117_266))
    assert parts["network"] == "ssd"
    assert parts["batch"] == "global batch 912"
    assert parts["data"] == "117,266 training images"
    assert parts["devices"] == parts["image size"] == "not in the log"
    assert heading(parts) == "ssd · global batch 912 · 117,266 training images"


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (["20261116-101010-a", "20261116-101011-b"], [{}, {}], ["a", "b"]),
        (
            ["20261116-101010-a", "20261116-101011-a"],
            [{"recipe": {"seed": 1, "optim": {"lr": 0.1}}}, {"recipe": {"seed": 1, "optim": {"lr": 0.05}}}],
            ["a, lr 0.1", "a, lr 0.05"],
        ),
        (
            ["20261116-101010-a"] * 2,
            [{"recipe": {"seed": n, "name": n, "model": {"width": n}, "optim": {"lr": n}}} for n in (1, 2)],
            ["a, width 1, lr 1, seed 1", "a, width 2, lr 2, seed 2"],
        ),
        (["20261116-101010-a", "20261116-101011-a"], [{}, {}], ["20261116-101010-a", "20261116-101011-a"]),
        (["raport", "raport"], [{}, {}], ["raport", "raport (2)"]),
    ],
)
def test_runs_of_one_name_are_told_apart_by_what_differs(
    names: list[str], settings: list[dict[str, object]], expected: list[str]
) -> None:
    assert unique_names(names, settings) == expected
