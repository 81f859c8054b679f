"""`vernier runs` and `vernier runs clean` as a person types them."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPO, Done, command
from tests.refusals import config_error_of
from tests.store.small_runs import fill_checkpoint
from vernier.store import RunDir, cleaning

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


def _three_steps(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*-shapes-quick/checkpoints/step-*"))


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
    for words in (["runs"], ["runs", "clean"]):
        assert vernier_here(*words).code == 0
        assert vernier_here(*words, "--json").code == 0
    assert vernier_here("runs").err == "No runs in runs/. vernier train makes one.\n"
    assert vernier_here("runs", "--json").json() == []
    (tmp_path / "file").touch()
    for words, given, works in (
        (["--sort", "color"], {"sort": "color"}, []),
        (["clean", "--what", "everything"], {"what": "everything"}, []),
        (["clean", "--older-than", "soon"], {"older_than": "soon"}, []),
        (["claen"], {}, ["runs.clean"]),
        (["clean", "none"], {}, []),
        (["file"], {}, []),
    ):
        error = config_error_of("runs", *words)
        assert (error.given, [name for name, _ in error.works]) == (given, works)
        assert words[-1] in str(error)


def test_clean_shows_what_would_go_and_removes_it_with_yes(
    runs: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs.parent)
    done = vernier_here("runs", "clean")
    assert done.code == 0
    assert re.search(r"^checkpoints +\d+ kB  runs/.*-shapes-quick: step-00000010, step-00000020$", done.out, re.M)
    assert "Nothing was removed: add --yes to do it." in done.out
    assert "left alone: runs/broken: damaged: " in done.err
    assert len(_three_steps(runs)) == 3
    planned = vernier_here("runs", "clean", "--json").json()
    assert planned["dry_run"] is True
    assert [item["kind"] for item in planned["removable"]] == ["checkpoints"]
    removed = vernier_here("runs", "clean", "--yes", "--json").json()
    assert removed["bytes"] == planned["bytes"] > 0
    assert removed["removed"] == planned["removable"]
    assert _three_steps(runs) == ["step-00000030"]
    assert "Nothing to remove." in vernier_here("runs", "clean", "--yes").err


def test_clean_one_run_and_one_kind(runs: Path, vernier_here: Vernier) -> None:
    (run,) = runs.glob("*-shapes-quick")
    assert "Nothing to remove" in vernier_here("runs", "clean", str(run), "--what", "smoke,traces", "--yes").err
    assert "Nothing to remove" in vernier_here("runs", "clean", str(run), "--older-than", "7d", "--yes").err
    assert len(_three_steps(runs)) == 3
    done = vernier_here("runs", "clean", str(run), "--what", "checkpoints", "--yes")
    assert re.search(r"^freed \d+ kB$", done.out, re.M)
    assert _three_steps(runs) == ["step-00000030"]


def test_a_run_that_another_folder_started_from_is_kept_by_its_neighbours(runs: Path, vernier_here: Vernier) -> None:
    """Also where only one run is named."""
    (run,) = runs.glob("*-shapes-quick")
    child = RunDir.create(runs, "child")
    child.write_config({"recipe": {"model": {"weights": str(run / "checkpoints/step-00000010/model.safetensors")}}})
    done = vernier_here("runs", "clean", str(run), "--yes")
    assert "another run was started from its weights" in done.err
    assert _three_steps(runs) == ["step-00000010", "step-00000030"]


def test_what_cannot_be_removed_is_exit_code_1(
    runs: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    done = vernier_here("runs", "clean", str(runs), "--yes")
    assert done.code == 1
    assert "could not be removed" in done.err


def test_a_real_smoke_run_is_removed_as_a_whole(shapes: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    """Every file that a training writes is known as one of Vernier's."""
    out = tmp_path / "trials"
    trained = vernier_here("train", "--smoke", "--data", str(shapes), "--out", str(out), "--set", "machine.threads=1")
    assert trained.code == 0, trained.err
    done = vernier_here("runs", "clean", str(out), "--yes")
    assert (done.code, list(out.iterdir())) == (0, []), done.out + done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_says_what_was_freed(
    runs: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    shutil.copytree(next(runs.glob("*-shapes-quick")), runs / "20991231-000000-last")

    def clean_until_signalled(run: RunDir, choice: cleaning.Choice, *, remove: bool) -> cleaning.Plan:
        if run.path.name == "20991231-000000-last":
            os.kill(os.getpid(), number)
        return clean_run(run, choice, remove=remove)

    clean_run = cleaning.clean_run
    monkeypatch.setattr(cleaning, "clean_run", clean_until_signalled)
    before = signal.getsignal(signal.SIGTERM)
    done = vernier_here("runs", "clean", str(runs), "--yes")
    assert (done.code, signal.getsignal(signal.SIGTERM)) == (130, before)
    assert re.search(r"freed [1-9][\d.]* \w+ before the interruption; the same command removes the rest", done.err)
    assert len(list((runs / "20991231-000000-last/checkpoints").glob("step-*"))) == 3
    monkeypatch.setattr(cleaning, "clean_run", clean_run)
    again = vernier_here("runs", "clean", str(runs), "--yes")
    assert (again.code, "freed" in again.out) == (0, True), again.err


def test_neither_list_nor_clean_imports_torch(runs: Path) -> None:
    for words in (["runs", str(runs)], ["runs", "clean", str(runs)]):
        done = subprocess.run(command(*words), env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}, capture_output=True)
        assert done.returncode == 0
        assert not re.search(rb"\| +torch$", done.stderr, re.MULTILINE)


def test_help_names_the_actions_and_the_default_one(vernier_here: Vernier) -> None:
    text = vernier_here("runs", "--help").out
    assert "vernier runs [-h] [ACTION] ..." in text
    assert "Without an action: vernier runs list." in text
    assert "--older-than" in vernier_here("runs", "clean", "--help").out
    assert "  runs " in vernier_here("--help").out
