"""`vernier study analyze`, `baseline`, `check` and `merge` as a user runs them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.measure.study.fleets import machine, write_study
from vernier.measure.study.files import Repeat, StudyDir
from vernier.records.study import StudyDevice, StudyMeta

Runner = Callable[..., Any]


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
    assert "13 more (--json has all)" in shown


def test_a_wrong_baseline_file(tmp_path: Path, vernier_here: Runner) -> None:
    study = write_study(tmp_path / "m", {"a": [1.0, 1.1]}, 1)
    for text, message in (("{", "Cannot read"), ("{}", "not a baseline")):
        (tmp_path / "b.json").write_text(text)
        done = vernier_here("study", "check", str(study), "--baseline", str(tmp_path / "b.json"))
        assert (done.code, message in done.err) == (2, True)


def test_nothing_to_read(tmp_path: Path, vernier_here: Runner) -> None:
    cases = (([], "Name what to read"), ([str(tmp_path / "no")], "does not exist"), ([str(tmp_path)], "has no study"))
    for arguments, message in cases:
        done = vernier_here("study", "analyze", *arguments)
        assert (done.code, message in done.err) == (2, True), done.err


def test_what_matters_is_a_share(tmp_path: Path, vernier_here: Runner) -> None:
    steady = {f"d{i}": [1 + i / 1e5 + k / 1e5 for k in range(4)] for i in range(20)}
    study = str(write_study(tmp_path / "m", {**steady, "slow": [1.006, 1.00601, 1.00602, 1.00603]}, 1))
    assert vernier_here("study", "analyze", study, "--json").json()["pull"] == []
    finer = vernier_here("study", "analyze", study, "--matter", "0.3%", "--json").json()
    assert (finer["pull"], finer["matter_percent"]) == (["slow"], 0.3)
    for wrong in ("-1%", "much", "300%"):
        done = vernier_here("study", "analyze", study, "--matter", wrong)
        assert (done.code, "--matter" in done.err) == (2, True), done.err
