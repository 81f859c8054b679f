"""Which subject is which: what ran in it, and names by what differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.examples import RAN as TRAINED
from vernier.lab.page.logs import Log
from vernier.records.events import StartEvent
from vernier.report.page.identity import heading, parts_of_record, unique_names
from vernier.report.page.runs import Run

RAN = replace(TRAINED, kind="infer", batch_per_device=1)


def test_the_heading_has_network_size_batch_and_data() -> None:
    configurations = [RAN, replace(RAN, batch_per_device=32)]
    assert heading(parts_of_record(configurations)) == "resnet50 · 224 px · batch 1, 32 · synthetic"
    assert parts_of_record(configurations)["precision"] == "fp32"
    assert parts_of_record([]) == {}
    assert heading({}) == ""


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (["20261116-101010-a", "20261116-101011-b"], [{}, {}], ["a", "b"]),
        (
            ["20261116-101010-a", "20261116-101011-a", "20261116-101012-b"],
            [{"recipe": {"optim": {"lr": lr}}} for lr in (0.1, 0.05, 0.05)],
            ["a, lr 0.1", "a, lr 0.05", "b"],
        ),
        (
            ["20261116-101010-a", "20261116-101011-a"],
            [{"recipe": {"seed": 1, "optim": {"lr": 0.1}}}, {"recipe": {"seed": 1, "optim": {"lr": 0.05}}}],
            ["lr 0.1", "lr 0.05"],
        ),
        (
            ["20261116-101010-a"] * 2,
            [{"recipe": {"seed": n, "name": n, "model": {"width": n}, "optim": {"lr": n}}} for n in (1, 2)],
            ["lr 1, width 1, seed 1", "lr 2, width 2, seed 2"],
        ),
        (
            ["20261116-101010-a"] * 2,
            [{"recipe": {"model": {"name": m}, "data": {"source": "shapes"}}} for m in ("resnet18", "resnet50")],
            ["model resnet18", "model resnet50"],
        ),
        (["20261116-101010-a", "20261116-101011-a"], [{}, {}], ["run 1 (10:10)", "run 2 (10:10)"]),
        (
            ["20261116-101010-a", "20261116-101011-a", "20261116-101012-a"],
            [{"recipe": {"optim": {"lr": lr}}} for lr in (0.1, 0.1, 0.2)],
            ["lr 0.1, run 1 (10:10)", "lr 0.1, run 2 (10:10)", "lr 0.2"],
        ),
    ],
)
def test_runs_of_one_name_are_told_apart_by_what_differs(
    names: list[str], settings: list[dict[str, object]], expected: list[str]
) -> None:
    labels = [
        Run(
            path=Path(name),
            name=name,
            settings=tree,
            start=StartEvent(time=f"2026-11-16T{name[9:11]}:{name[11:13]}:00+00:00"),
        )
        for name, tree in zip(names, settings, strict=True)
    ]
    assert unique_names(labels) == expected


def test_runs_that_only_many_settings_tell_apart_are_named_by_more_than_a_few() -> None:
    trees = [{"recipe": dict(zip("abcd", map(int, f"{i:04b}"), strict=True))} for i in range(16)]
    names = unique_names([Run(path=Path("x"), name="x", settings=tree) for tree in trees])
    assert len(set(names)) == 16
    assert names[5] == "a 0, b 1, c 0, d 1"


def test_logs_are_named_by_file_and_by_the_network_and_folder_in_which_they_differ() -> None:
    def names(*logs: tuple[str, str]) -> list[str]:
        labels = [Log(path=Path(path), name=Path(path).stem, parts={"network": network}) for path, network in logs]
        return unique_names(labels)

    assert names(("a/result_0.txt", "ssd"), ("a/result_1.txt", "ssd")) == ["result_0", "result_1"]
    assert names(("a/result_0.txt", "ssd"), ("b/result_0.txt", "resnet50")) == ["ssd result_0", "resnet50 result_0"]
    assert names(("x/a/raport.json", "resnet50"), ("x/b/raport.json", "resnet50")) == ["a raport", "b raport"]
