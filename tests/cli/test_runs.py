"""`vernier runs` as a person types it."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPO, Done, command
from tests.refusals import config_error_of
from tests.store.small_runs import fill_checkpoint
from vernier.store import RunDir

Vernier = Callable[..., Done]
GOLDEN = REPO / "tests" / "golden" / "0.1"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A classifier, a benchmark, a study, a finished run with three checkpoints and a damaged one."""
    folder = tmp_path / "runs"
    for name in ("classifier", "bench-train", "study"):
        shutil.copytree(GOLDEN / name, folder / name)
    run = RunDir.create(folder, "shapes-quick")
    run.write_config({"recipe": {"name": "shapes-quick"}})
    for step in (10, 20, 30):
        run.checkpoints.commit(step, fill_checkpoint)
    run.write_status("finished")
    shutil.copytree(GOLDEN / "classifier", folder / "broken")
    (folder / "broken/run.json").write_text("{")
    return folder


def test_runs_are_listed_with_state_result_and_size(
    runs: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs.parent)
    done = vernier_here("runs")
    assert done.code == 0, done.err
    line = next(line for line in done.out.splitlines() if line.startswith("classifier"))
    assert re.match(r"classifier +finished +10\.00 % +4 +\d+ kB +\d+ \w+ +resnet8-small · 32 px", line), line
    assert re.search(r"^bench-train +finished +[\d,]+ img/s", done.out, re.MULTILINE)
    assert re.search(r"^study +finished +15 repeats", done.out, re.MULTILINE)
    assert f"damaged: {Path('runs/broken')}: Cannot read runs/broken/run.json" in done.err
    assert re.search(r"5 runs, [\d.]+ MB: .*1 damaged", done.err)
    assert vernier_here("runs", "list", "runs").out == vernier_here("runs", "runs").out
    several = vernier_here("runs", "runs", "runs/study").out
    assert "runs/classifier" in several


def test_the_list_is_sorted_as_asked_and_printed_as_json(runs: Path, vernier_here: Vernier) -> None:
    for key in ("age", "name", "size", "state", "result"):
        rows = vernier_here("runs", str(runs), "--sort", key, "--json").json()
        values = [-row["age_s"] if key == "age" else row[{"size": "bytes"}.get(key, key)] for row in rows]
        assert len(rows) == 5
        if key != "result":
            assert values == sorted(values)
    row = next(row for row in rows if row["name"] == "classifier")
    assert row["path"] == str(runs / "classifier")
    assert (row["kind"], row["state"], row["metric"], row["result"]) == ("training", "finished", "top1", 10.0)
    assert row["bytes"] > 100_000


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_fits_the_terminal(
    runs: Path, width: int, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "classifier").rename(runs / "20261117-101500-habana-tf-resnext101-250e-as-documented")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = re.sub(r"\x1b\[[0-9;]*m", "", vernier_here("runs", str(runs)).out)
    assert max(map(len, out.splitlines())) <= width
    head = out.splitlines()[0].split()
    assert head[:4] == ["run", "state", "result", *(["size"] if width == 60 else ["step"])][:4]
    assert "10.00 %" in out


def test_no_runs_and_wrong_folders(vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert vernier_here("runs").err == "No runs in runs/. vernier train makes one.\n"
    assert vernier_here("runs", "--json").json() == []
    (tmp_path / "file").touch()
    for words, given, works in (
        (["--sort", "color"], {"sort": "color"}, []),
        (["none"], {}, []),
        (["file"], {}, []),
    ):
        error = config_error_of("runs", *words)
        assert (error.given, [name for name, _ in error.works]) == (given, works)
        assert words[-1] in str(error)


def test_the_list_does_not_import_torch(runs: Path) -> None:
    environ = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command("runs", str(runs)), env=environ, capture_output=True)
    assert done.returncode == 0
    assert not re.search(rb"\| +torch$", done.stderr, re.MULTILINE)


def test_help_names_the_actions_and_the_default_one(vernier_here: Vernier) -> None:
    text = vernier_here("runs", "--help").out
    assert "vernier runs [-h] [ACTION] ..." in text
    assert "Without an action: vernier runs list." in text
    assert "  runs " in vernier_here("--help").out
