"""`vernier study` as a user types it, `run` with real measuring processes."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPO, Done
from tests.lab.study.fleets import machine, write_study
from tests.refusals import config_error_of, names_given, what_works
from vernier.cli import main
from vernier.lab.study import run as study_run
from vernier.lab.study.files import Repeat, StudyDir
from vernier.lab.study.records import StudyDevice, StudyMeta
from vernier.lab.study.run import StudySettings

Runner = Callable[..., Done]


def test_from_merge_to_check_on_the_command_line(tmp_path: Path, vernier_here: Runner) -> None:
    rng = np.random.default_rng(5)
    for m in range(4):
        named = {f"m{m}-{d}": v for d, v in machine(rng, devices=8).items()}
        write_study(tmp_path / f"m{m}", named, m)
    sources = [str(tmp_path / f"m{m}") for m in range(4)]
    assert vernier_here("study", "merge", *sources, "-o", str(tmp_path / "fleet")).code == 0
    analysed = vernier_here("study", "analyze", str(tmp_path / "fleet"), "--json").json()
    assert (analysed["devices_measured"], analysed["simulated"], analysed["unit"]) == (32, True, "s")
    shown = vernier_here("study", "analyze", str(tmp_path / "fleet" / "all_data.csv")).out
    assert "32 SIMULATED devices" in shown
    learned = vernier_here("study", "baseline", str(tmp_path / "fleet"), "-o", str(tmp_path / "b.json"))
    assert learned.code == 0, learned.err
    good = write_study(tmp_path / "good", machine(rng), 7)
    bad = write_study(tmp_path / "bad", machine(rng, slow=1.12), 8)
    accepted = vernier_here("study", "check", str(good), "--baseline", str(tmp_path / "b.json"))
    assert (accepted.code, "SIMULATED machine accepted" in accepted.out) == (0, True)
    rejected = vernier_here("study", "check", str(bad), "--baseline", str(tmp_path / "b.json"))
    assert rejected.code == 1
    assert "gpu0: REJECTED" in rejected.out


def test_an_interrupted_study_says_so(tmp_path: Path, vernier_here: Runner) -> None:
    write_study(tmp_path / "m", {"a": [1.0, 1.1], "b": [1.0, 1.2]}, 1)
    notes = vernier_here("study", "analyze", str(tmp_path / "m"), "--json").json()["notes"]
    assert any("4 of 8 repeats" in n for n in notes)


def test_only_the_first_notes_are_shown(tmp_path: Path, vernier_here: Runner) -> None:
    study = StudyDir.create(
        tmp_path, StudyMeta(workload="sgemm", iterations=2, repeats=20, devices=(StudyDevice(id="a"),))
    )
    for k in range(20):
        study.write_repeat(Repeat(device="a", repeat=k, seconds=(1.0, 1.0 + k / 100), notes=(f"load {k}",)))
    assert len(vernier_here("study", "analyze", str(tmp_path), "--json").json()["notes"]) == 21
    shown = vernier_here("study", "analyze", str(tmp_path)).out
    assert "a, repeat 7: load 7" in shown
    assert "load 8" not in shown
    assert "13 more (vernier study analyze --json lists all)" in shown


def test_a_wrong_baseline_file(tmp_path: Path, vernier_here: Runner) -> None:
    study = write_study(tmp_path / "m", {"a": [1.0, 1.1]}, 1)
    for text in ("{", "{}"):
        (tmp_path / "b.json").write_text(text)
        done = vernier_here("study", "check", str(study), "--baseline", str(tmp_path / "b.json"))
        assert (done.code, str(tmp_path / "b.json") in done.err) == (2, True)


def test_nothing_to_read(tmp_path: Path, vernier_here: Runner) -> None:
    assert "CSV|DIR" in vernier_here("study", "analyze").err
    for path in (tmp_path / "no", tmp_path):
        done = vernier_here("study", "analyze", str(path))
        assert (done.code, str(path) in done.err) == (2, True), done.err


def test_what_matters_is_a_percentage(tmp_path: Path, vernier_here: Runner) -> None:
    steady = {f"d{i}": [1 + i / 1e5 + k / 1e5 for k in range(4)] for i in range(20)}
    study = str(write_study(tmp_path / "m", {**steady, "slow": [1.006, 1.00601, 1.00602, 1.00603]}, 1))
    assert vernier_here("study", "analyze", study, "--json").json()["pull"] == []
    finer = vernier_here("study", "analyze", study, "--matter", "0.3%", "--json").json()
    assert (finer["pull"], finer["matter_percent"]) == (["slow"], 0.3)
    for wrong in ("-1%", "much", "300%", "0.01"):
        done = vernier_here("study", "analyze", study, "--matter", wrong)
        assert (done.code, "--matter" in done.err) == (2, True), done.err


def test_a_design_is_answered_with_its_uncertainty(vernier_here: Runner) -> None:
    flags = ("study", "design", "--devices", "12", "--find", "5%", "--spread", "0.4%", "--noise", "0.6%")
    done = vernier_here(*flags, "--fleets", "40")
    assert done.code == 0, done.err
    assert "12 devices x 3 repeats name a device that is 5 % slow in" in done.out
    assert "of 40 simulated fleets" in done.out
    assert "95 % interval" in done.out
    assert "cheapest    12 devices x" in done.out
    answer = vernier_here(*flags, "--fleets", "40", "--json").json()
    assert answer["proposed"]["fleets"] == 40
    assert answer["cheapest"]["power"] >= 0.95


def test_a_design_from_a_pilot(vernier_here: Runner) -> None:
    path = str(REPO / "docs" / "examples" / "fleet.csv")
    done = vernier_here("study", "design", "--devices", "8", "--find", "9%", "--pilot", path, "--fleets", "30")
    assert f"(from {path})" in done.out
    assert "repeats by 0.81 %" in done.out


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("design --noise fast", "noise", ""),
        ("design --find 0%", "find", ""),
        ("design --devices 1", "devices", ""),
        ("design --repeats 1", "repeats", ""),
        ("design --fleets 0", "fleets", ""),
        ("design --repeat-seconds 0", "repeat_time", ""),
        ("run --iterations 1", "iterations", ""),
        ("run --virtual 2 --slow 7=1.1", "slow virtual", ""),
        ("run --slow 1=1.1", "slow", "virtual=N"),
        ("run --workload sgemm --precision fp16", "machine.precision", "workload=resnet50 workload=shapes"),
    ],
)
def test_wrong_studies_are_refused_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, given: str, works: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = config_error_of("study", *words.split())
    assert (names_given(error), what_works(error)) == (given, works)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "named"), [("baseline x.csv", "--out"), ("design --pilot /nowhere", "/nowhere")])
def test_what_is_missing_is_named(vernier_here: Runner, words: str, named: str) -> None:
    done = vernier_here("study", *words.split())
    assert (done.code, named in done.err) == (2, True)


@pytest.mark.slow
def test_a_study_in_real_processes_is_labelled_as_simulated(vernier_here: Runner, tmp_path: Path) -> None:
    done = vernier_here(
        *("study", "run", "--workload", "sgemm", "--virtual", "2", "--slow", "1=3", "--iterations", "10"),
        *("--repeats", "1", "--pause", "0s", "--kernels", "1", "--out", str(tmp_path / "s"), "--json"),
    )
    assert done.code == 0, done.err
    assert done.json()["simulated"] is True
    assert "2 devices x 1 repeat x 10 iterations" in done.err
    assert done.err.index("s per iteration: ") < done.err.index("2/2 done")
    assert json.loads((tmp_path / "s" / "study.json").read_text())["simulated"] is True
    rows = (tmp_path / "s" / "all_data.csv").read_text().splitlines()
    assert len(rows) == 3
    assert all(row.endswith(",1") for row in rows[1:])


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


def test_an_interrupted_study_comes_with_the_command_that_resumes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vernier_here: Runner
) -> None:
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(study_run, "collect", stop)
    monkeypatch.chdir(tmp_path)
    done = vernier_here("study", "run", "--workload", "sgemm", "--repeats", "3", "--virtual", "2")
    assert done.code == 130
    assert "0 repeats finished; to resume: vernier study run" in done.err
    words = done.err.split("to resume: ")[1].split()
    assert {"--workload", "--repeats", "--virtual"} < set(words)
    assert words[words.index("--out") + 1].endswith("-study-sgemm")
