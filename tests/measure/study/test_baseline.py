"""A fleet's baseline and the machines it accepts or rejects, through the command line as well."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.measure.study.test_analysis import table
from vernier.errors import ConfigError
from vernier.measure.study.baseline import Baseline, check, learn
from vernier.measure.study.files import Repeat, StudyDir
from vernier.records.study import StudyDevice, StudyMeta

Runner = Callable[..., Any]


def _machine(rng: np.random.Generator, slow: float = 1.0, repeats: int = 4, devices: int = 4) -> dict[str, list[float]]:
    factors = np.exp(rng.normal(0, 0.008, devices))
    factors[0] *= slow
    return {f"gpu{d}": [float(f * np.exp(rng.normal(0, 0.01))) for _ in range(repeats)] for d, f in enumerate(factors)}


def _fleet(rng: np.random.Generator, devices: int = 64) -> dict[str, list[float]]:
    return _machine(rng, devices=devices)


def test_slow_machines_are_rejected_and_ordinary_ones_accepted() -> None:
    rng = np.random.default_rng(5)
    learned = learn(table(_fleet(rng)))
    verdicts = [check(learned, table(_machine(rng)))["accepted"] for _ in range(300)]
    assert np.mean(verdicts) >= 0.97
    assert not any(check(learned, table(_machine(rng, slow=1.08)))["accepted"] for _ in range(100))


def test_the_reason_is_said() -> None:
    rng = np.random.default_rng(5)
    found = check(learn(table(_fleet(rng))), table(_machine(rng, slow=1.10)))
    bad = next(d for d in found["devices"] if not d["accepted"])
    assert bad["device"] == "gpu0"
    assert "% slower than the fleet's" in bad["reasons"][0]


def test_unsteady_repeats_are_rejected_where_the_fleet_is_large_enough() -> None:
    rng = np.random.default_rng(5)
    machine = {"gpu0": [0.8, 1.0, 1.25, 1.0]}
    large = check(learn(table(_fleet(rng, 200))), table(machine))
    assert "repeats spread" in large["devices"][0]["reasons"][0]
    small = check(learn(table(_fleet(rng, 20))), table(machine))
    assert small["accepted"]
    assert any("steadiness of repeats is not judged" in note for note in small["notes"])


def test_a_baseline_that_sees_little_says_how_little() -> None:
    """Six devices that differ by a tenth accept one that is a quarter slower; that must be said."""
    rng = np.random.default_rng(5)
    fleet = {f"cpu{d}": np.exp(rng.normal(0, 0.1) + rng.normal(0, 0.1, 4)).tolist() for d in range(6)}
    found = check(learn(table(fleet)), table({"cpu9": [1.25, 1.25, 1.25, 1.25]}))
    assert found["accepted"]
    (said,) = [note for note in found["notes"] if "slower can be told" in note]
    least = float(said.split("more than ")[1].split(" %")[0]) / 100
    assert found["devices"][0]["limit"] == pytest.approx(
        (1 + least) * np.exp(learn(table(fleet)).speed.centre), rel=0.01
    )
    assert not check(learn(table(fleet)), table({"cpu9": [1.2 * (1 + least)] * 4}))["accepted"]
    sharp = check(learn(table(_fleet(rng))), table(_machine(rng)))
    assert not any("can be told" in note for note in sharp["notes"])


def test_a_fleets_own_slow_devices_do_not_make_slowness_ordinary() -> None:
    rng = np.random.default_rng(5)
    fleet = _fleet(rng)
    for device in list(fleet)[:8]:
        fleet[device] = [v * 1.15 for v in fleet[device]]
    learned = learn(table(fleet))
    assert len(learned.set_aside) == 8
    assert not check(learned, table(_machine(rng, slow=1.10)))["accepted"]


def test_what_was_not_measured_alike_is_not_compared() -> None:
    rng = np.random.default_rng(5)
    learned = learn(table(_fleet(rng), workload="sgemm"))
    with pytest.raises(ConfigError, match="workload is 'sgemm' there"):
        check(learned, table(_machine(rng), workload="resnet50"))
    with pytest.raises(ConfigError, match="unit is 's' there"):
        check(learned, table(_machine(rng), workload="sgemm", unit="ms"))


def test_too_little_to_learn_from() -> None:
    with pytest.raises(ConfigError, match="at least 5 devices"):
        learn(table({"a": [1.0, 1.1]}))
    with pytest.raises(ConfigError, match="needs repeats"):
        learn(table({f"d{i}": [1.0 + i] for i in range(9)}))


def test_a_baseline_survives_its_file() -> None:
    learned = learn(table(_fleet(np.random.default_rng(5))))
    assert Baseline.from_dict(json.loads(json.dumps(learned.as_dict()))) == learned
    with pytest.raises(ConfigError, match="not a baseline"):
        Baseline.from_dict({"method": "other"})
    with pytest.raises(ConfigError, match="damaged"):
        Baseline.from_dict({**learned.as_dict(), "speed": None})


def _write_study(path: Path, machine: dict[str, list[float]], seed: int) -> Path:
    rng = np.random.default_rng(seed)
    devices = tuple(StudyDevice(id=d, index=i, host=path.name, slowdown=1.0) for i, d in enumerate(machine))
    study = StudyDir.create(
        path, StudyMeta(workload="sgemm", iterations=20, repeats=4, devices=devices, simulated=True)
    )
    for device, values in machine.items():
        for k, value in enumerate(values):
            seconds = tuple(float(s) for s in value * np.exp(rng.normal(0, 0.001, 21)))
            study.write_repeat(Repeat(device=device, repeat=k, seconds=seconds))
    study.write_tables()
    return path


def test_from_merge_to_check_on_the_command_line(tmp_path: Path, vernier_here: Runner) -> None:
    rng = np.random.default_rng(5)
    for m in range(4):
        named = {f"m{m}-{d}": v for d, v in _machine(rng, devices=8).items()}
        _write_study(tmp_path / f"m{m}", named, m)
    sources = [str(tmp_path / f"m{m}") for m in range(4)]
    assert vernier_here("study", "merge", *sources, "-o", str(tmp_path / "fleet")).code == 0
    analysed = vernier_here("study", "analyze", str(tmp_path / "fleet"), "--json").json()
    assert (analysed["devices_measured"], analysed["simulated"], analysed["unit"]) == (32, True, "s")
    shown = vernier_here("study", "analyze", str(tmp_path / "fleet" / "all_data.csv")).out
    assert "32 SIMULATED devices" in shown
    made = vernier_here("study", "baseline", str(tmp_path / "fleet"), "-o", str(tmp_path / "b.json"))
    assert made.code == 0, made.err
    good = _write_study(tmp_path / "good", _machine(rng), 7)
    bad = _write_study(tmp_path / "bad", _machine(rng, slow=1.12), 8)
    accepted = vernier_here("study", "check", str(good), "--baseline", str(tmp_path / "b.json"))
    assert (accepted.code, "SIMULATED machine accepted" in accepted.out) == (0, True)
    rejected = vernier_here("study", "check", str(bad), "--baseline", str(tmp_path / "b.json"))
    assert rejected.code == 1
    assert "gpu0: REJECTED" in rejected.out


def test_a_study_cut_short_says_so(tmp_path: Path, vernier_here: Runner) -> None:
    _write_study(tmp_path / "m", {"a": [1.0, 1.1], "b": [1.0, 1.2]}, 1)
    notes = vernier_here("study", "analyze", str(tmp_path / "m"), "--json").json()["notes"]
    assert any("4 of 8 repeats" in n for n in notes)


def test_notes_of_repeats_are_told_without_flooding(tmp_path: Path, vernier_here: Runner) -> None:
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
    machine = _write_study(tmp_path / "m", {"a": [1.0, 1.1]}, 1)
    for text, message in (("{", "it is no JSON"), ("{}", "not a baseline")):
        (tmp_path / "b.json").write_text(text)
        done = vernier_here("study", "check", str(machine), "--baseline", str(tmp_path / "b.json"))
        assert (done.code, message in done.err) == (2, True)
