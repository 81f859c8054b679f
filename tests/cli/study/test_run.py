"""`vernier study run` as a user runs it, with real measuring processes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from vernier.cli import main
from vernier.measure.study import run as study_run
from vernier.measure.study.run import StudySettings


@pytest.mark.slow
def test_a_study_in_real_processes_is_labelled_as_simulated(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here(
        *("study", "run", "--workload", "sgemm", "--virtual", "2", "--slow", "1=3", "--iterations", "10"),
        *("--repeats", "1", "--pause", "0", "--kernels", "1", "--out", str(tmp_path / "s"), "--json"),
    )
    assert done.code == 0, done.err
    assert done.json()["simulated"] is True
    assert "2 devices x 1 repeat x 10 iterations" in done.err
    assert done.err.index("s per iteration: ") < done.err.index("2/2 done")
    assert json.loads((tmp_path / "s" / "study.json").read_text())["simulated"] is True
    rows = (tmp_path / "s" / "all_data.csv").read_text().splitlines()
    assert len(rows) == 3
    assert all(row.endswith(",1") for row in rows[1:])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--iterations", "1"], "--iterations 1 is out of range: it must be 2 or more"),
        (["--virtual", "2", "--slow", "7=1.1"], "has 0 to 1"),
        (["--slow", "1=1.1"], "--virtual"),
        (["--workload", "sgemm", "--precision", "fp16"], "sgemm is always fp32"),
    ],
)
def test_wrong_flags_are_refused(
    vernier_here: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vernier_here("study", "run", *flags)
    assert (done.code, message in done.err) == (2, True), done.err
    assert list(tmp_path.iterdir()) == []


def test_the_precision_is_that_of_the_workload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Chosen(Exception):
        pass

    def stop(settings: StudySettings, *_: object) -> None:
        raise Chosen(settings.config)

    monkeypatch.setattr(study_run, "collect", stop)
    for words, precision in ((["--precision", "fp16", "--allow-slow"], "fp16"), ([], "fp32")):
        with pytest.raises(Chosen) as chosen:
            main(["study", "run", "--workload", "resnet50", "--device", "cpu", "--out", str(tmp_path / "s"), *words])
        assert chosen.value.args[0]["machine"]["precision"] == precision
