"""`vernier study simulate` and `design` as a user would type them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., Any]


def test_a_fleet_is_simulated_and_analysed(tmp_path: Path, vernier_here: Runner) -> None:
    path = str(tmp_path / "fleet")
    done = vernier_here("study", "simulate", "-o", path, "--devices", "12", "--slow", "1", "--slow-by", "20%")
    assert done.code == 0, done.err
    assert "12 SIMULATED devices in 3 hosts x 5 repeats" in done.out
    truth = json.loads((tmp_path / "fleet" / "truth.json").read_text())
    (slow,) = [d["id"] for d in truth["devices"] if d["fault"] == "slow"]
    analysis = vernier_here("study", "analyze", path)
    assert "12 SIMULATED devices" in analysis.out
    assert f"remove     {slow} (certainly slow" in analysis.out
    assert vernier_here("study", "simulate", "-o", path).code == 2  # never overwritten


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


def test_a_design_from_a_pilot(tmp_path: Path, vernier_here: Runner) -> None:
    path = str(tmp_path / "pilot.csv")
    vernier_here("study", "simulate", "-o", path, "--devices", "40", "--spread", "1%", "--noise", "0.3%")
    done = vernier_here("study", "design", "--devices", "8", "--find", "9%", "--pilot", path, "--fleets", "30")
    assert f"(from {path})" in done.out
    assert "repeats by 0.3" in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("simulate", "-o", "x", "--noise", "fast"), "--noise 'fast' is not a share"),
        (("simulate", "-o", "x", "--devices", "2", "--slow", "3"), "not possible among 2 devices"),
        (("simulate",), "--out"),
        (("design", "--find", "0%"), "--find '0%' is not a share"),
        (("design", "--devices", "1"), "--devices 1: with fewer than 3"),
        (("design", "--repeats", "1"), "--repeats 1: without a second repeat"),
        (("design", "--fleets", "0"), "--fleets 0 is out of range"),
        (("design", "--repeat-seconds", "0"), "--repeat-seconds 0 must be more than 0"),
        (("design", "--pilot", "/nowhere"), "/nowhere does not exist"),
    ],
)
def test_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vernier_here: Runner, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vernier_here("study", *arguments)
    assert done.code == 2
    assert says in done.err
    assert list(tmp_path.iterdir()) == []
