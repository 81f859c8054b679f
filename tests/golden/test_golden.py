"""Run directories, benchmarks and studies that earlier versions wrote stay readable, resumable and reportable.

Each folder was written by the version it is named after: a finished classifier, an unfinished one, a detector, three
benchmarks, a profile, a study with its analysis and a baseline, all on the few images in `shapes/`. `make.py` writes
such a folder; 0.1 was made by hand, with the averaged weights and the traces that the others omit, and 0.2 and 0.3 with
the names that flags had then.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done
from tests.documented import configured
from tests.golden import make
from vernier.config import config_from_tree
from vernier.records.events import StartEvent
from vernier.store import RunDir

HERE = Path(__file__).parent
VERSIONS = sorted(p.name for p in HERE.iterdir() if p.is_dir() and p.name[0].isdigit())
RUNS = ["classifier", "stopped", "detector", "bench-train", "bench-infer", "bench-scaling", "profile"]


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that may be written to, and the current folder."""
    folder = shutil.copytree(HERE / request.param, tmp_path / "golden")
    monkeypatch.chdir(folder)
    return folder


def _expected(golden: Path, name: str) -> Any:
    return json.loads((golden / name).read_text())


def test_there_is_something_to_keep_readable() -> None:
    assert {"0.1", "0.2", "0.3"} <= set(VERSIONS)


def test_the_commands_of_the_next_golden_set_still_exist() -> None:
    for line in make.commands():
        configured(tuple(line.split()))


@pytest.mark.parametrize("name", RUNS)
def test_every_file_of_a_run_is_read(golden: Path, name: str) -> None:
    run = RunDir.open(golden / name)
    assert config_from_tree(run.read_config()).recipe.model.width == 8
    assert run.status().status == "finished"
    assert run.read_environment()["host"]
    assert run.history_and_damage()[1] == 0
    if name in ("classifier", "stopped", "detector"):
        assert isinstance(run.history()[0], StartEvent)
        assert run.read_telemetry()


@pytest.mark.parametrize(
    ("name", "figures"), [("classifier", ["top1", "top5", "loss"]), ("detector", ["AP", "AP50", "AR100"])]
)
def test_a_checkpoint_evaluates_to_what_it_did_then(
    golden: Path, vernier_here: Callable[..., Done], name: str, figures: list[str]
) -> None:
    done = vernier_here("eval", name, "--json")
    assert done.code == 0, done.err
    result, expected = done.json(), _expected(golden, f"{name}-eval.json")
    assert {k: result[k] for k in figures} == pytest.approx({k: expected[k] for k in figures}, abs=1e-4)


def test_an_unfinished_run_is_resumed_to_its_end(golden: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here(
        "train", "--config", "stopped/config.json", "--resume", "stopped", "--max-steps", "8", "--out", ".", "--json"
    )
    assert done.code == 0, done.err
    run = RunDir.open(golden / "stopped")
    assert run.checkpoints.committed()[-1].step == 8
    assert [e.resumed_from for e in run.history() if isinstance(e, StartEvent)] == [None, 3]


def test_one_page_reports_all_of_them(golden: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("report", *RUNS, "study", "-o", "page.html")
    assert done.code == 0, done.err
    page = (golden / "page.html").read_text()
    assert "could not be made" not in page
    for name in ("bench-train", "classifier", "detector", "study"):
        assert name in page


def test_runs_and_benchmarks_are_compared(golden: Path, vernier_here: Callable[..., Done]) -> None:
    assert vernier_here("compare", "classifier", "stopped", "--json").code in (0, 1)
    configurations = [f"bench-train#{row['arm']}" for row in _expected(golden, "bench-train/bench.json")["rows"]]
    assert len(configurations) == 2
    assert vernier_here("compare", *configurations, "--json").code == 2  # another batch is other work
    assert vernier_here("compare", *configurations, "--different-work", "--json").code in (0, 1)


def test_a_study_is_analysed_to_the_same_figures(golden: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("study", "analyze", "study", "--json")
    assert done.code == 0, done.err
    result, expected = done.json(), _expected(golden, "analysis.json")
    assert set(expected) <= set(result)
    for key in ("workload", "unit", "median", "variation_percent"):
        assert result.get(key) == expected.get(key), key
    measured = (
        "device",
        "repeats",
        "median",
        "normalised",
        "slower_percent",
        "beyond_fence",
    )  # verdicts are better now
    assert [[d[k] for k in measured] for d in result["devices"]] == [
        [d[k] for k in measured] for d in expected["devices"]
    ]


def test_an_analysis_is_shown_on_a_page(golden: Path, vernier_here: Callable[..., Done]) -> None:
    (golden / "old.json").write_text(json.dumps(_expected(golden, "analysis.json")))
    done = vernier_here("report", "old.json", "-o", "page.html")
    assert done.code == 0, done.err
    assert "simulated-004" in (golden / "page.html").read_text()


def test_a_baseline_checks_a_machine(golden: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("study", "check", "study", "--baseline", "baseline.json", "--json")
    assert done.code in (0, 1), done.err
    assert done.json()


@pytest.mark.parametrize("file", ["config.json", "run.json", "bench.json"])
def test_a_file_of_a_newer_version_is_named_and_refused(
    golden: Path, vernier_here: Callable[..., Done], file: str
) -> None:
    path = golden / "bench-train" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    done = vernier_here("report", "bench-train", "-o", "page.html")
    text = done.err + ((golden / "page.html").read_text() if (golden / "page.html").exists() else "")
    assert "newer version of Vernier" in text
