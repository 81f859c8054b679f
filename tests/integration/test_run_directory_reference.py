"""The reference in docs/run-directory.md names every field that real runs write."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPO, TINY, Done, only_run
from vernier.data.shapes import ShapesSpec, make_shapes

PAGE = REPO / "docs" / "run-directory.md"
EVERYWHERE = {"schema", "time", "kind", "step"}


def documented(heading: str) -> set[str]:
    """The names in code marks of one section of the page."""
    section = re.search(rf"^#+ `?{re.escape(heading)}`?\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, f"{PAGE.name} has no section {heading}"
    return set(re.findall(r"`([A-Za-z0-9_]+)`", section[1]))


def undocumented(file: Path, heading: str | None = None) -> list[str]:
    """`kind.field` of each record that its section leaves out."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(
        {
            f"{event['kind']}.{field}"
            for event in events
            for field in event.keys() - EVERYWHERE - documented(heading or event["kind"])
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shapes: Path) -> list[Path]:
    """A classifier in fp16 and a detector."""
    from vernier.cli import main

    folder = tmp_path_factory.mktemp("reference")
    boxes = make_shapes(folder / "boxes", ShapesSpec(kind="detect", train=24, val=10, size_px=96, seed=5))
    half = ["--precision", "fp16", "--allow-slow", "--epochs", "1"]
    assert main(["train", "--data", str(shapes), "--out", str(folder / "a"), *TINY, *half]) == 0
    detector = ["train", "habana-ssd-1", "--smoke", "--data", str(boxes), "--set", "machine.threads=1"]
    assert main([*detector, "--out", str(folder / "b")]) == 0
    return [only_run(folder / "a"), only_run(folder / "b")]


def test_every_event_and_field_is_documented(runs: list[Path]) -> None:
    kinds = {json.loads(line)["kind"] for run in runs for line in (run / "events.jsonl").read_text().splitlines()}
    assert kinds == {"start", "step", "fingerprint", "epoch", "eval", "checkpoint", "warning", "end"}
    assert [name for run in runs for name in undocumented(run / "events.jsonl")] == []
    assert [name for run in runs for name in undocumented(run / "telemetry.jsonl", "telemetry.jsonl")] == []


def test_every_file_is_documented(runs: list[Path]) -> None:
    tree = PAGE.read_text().split("```")[1]
    tops = {path.name for run in runs for path in run.iterdir()}
    assert {top for top in tops if not re.search(rf"^  {re.escape(top)}/?\s", tree, re.MULTILINE)} == set()


def test_benchmarks_and_studies_are_documented(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path) -> None:
    small = ["--steps", "2", "--repeats", "1", "--batch", "4", "--set", "machine.threads=1"]
    assert vernier_here("bench", "train", "--data", str(shapes), "--out", str(tmp_path / "out"), *small).code == 0
    bench = json.loads((only_run(tmp_path / "out") / "bench.json").read_text())
    assert bench.keys() - EVERYWHERE - documented("bench.json") == set()
    quick = ["--iterations", "2", "--repeats", "1", "--pause", "0", "--kernels", "0", "--device", "cpu"]
    study = tmp_path / "study"
    done = vernier_here("study", "run", "--workload", "sgemm", "--virtual", "2", *quick, "--out", str(study))
    assert done.code == 0, done.err
    assert json.loads((study / "study.json").read_text()).keys() - EVERYWHERE - documented("Study directories") == set()
