"""A study's analysis and a check in words."""

from dataclasses import replace

import pytest

from tests.lab.study.fleets import table
from vernier.lab.reading.text import check_lines, study_lines, study_rows
from vernier.lab.study.analysis import analyze
from vernier.lab.study.baseline import check, learn
from vernier.lab.study.votes import Dissent, Electorate
from vernier.references import plain

FLEET = {f"d{i}": [1 + i / 1000, 1.001 + i / 1000, 0.999 + i / 1000] for i in range(12)}


def test_what_removing_the_slow_devices_gains() -> None:
    one = study_lines(analyze(table({**FLEET, "slow": [1.2, 1.2, 1.2]})))
    assert "remove     slow (certainly slow by 1 % or more)" in one
    assert any("Without this device synchronous training would lose 0.5 % instead of 19.3 %." in line for line in one)
    two = study_lines(analyze(table({**FLEET, "a": [1.2, 1.2, 1.2], "b": [1.3, 1.3, 1.3]})))
    assert any("Without these 2 devices synchronous training would lose 0.4 % instead of" in line for line in two)
    assert "remove     no device (certainly slow by 1 % or more: none)" in study_lines(analyze(table(FLEET)))


def test_certainly_is_explained() -> None:
    lines = study_lines(analyze(table(FLEET)))
    assert any("standing out: 0 slow, 0 fast; certainly: 0 slow, 0 fast" in line for line in lines)
    assert any("an ordinary device is called slow, also if devices differ by a skewed" in line for line in lines)


def test_a_device_that_only_a_normal_law_excludes_stands_out_and_is_not_to_be_removed() -> None:
    skewed = {f"d{i:02d}": [1 + 0.006 * x] * 3 + [1 + 0.006 * x + 0.001] for i, x in enumerate(_exponential(32))}
    analysis = analyze(table(skewed))
    lines = study_lines(analysis)
    assert (analysis.pull, analysis.devices[0].sure_slow) == ((), False)
    assert study_rows(analysis, 1)[0]["verdict"] == "stands out as slow"
    assert any("the ordinary devices here are skewed (skewness +" in line for line in lines)
    assert any(line.startswith("look at    d31: slow, but perhaps ordinary") for line in lines)


def _exponential(count: int) -> list[float]:
    """The expected order of so many exponential numbers, the largest one a little further out."""
    ordered = [sum(1 / (count - j) for j in range(i + 1)) for i in range(count)]
    return [*ordered[:-1], ordered[-1] + 1]


def test_three_or_four_devices_only_differ() -> None:
    analysis = analyze(table({f"d{i}": [1 + 0.02 * i + j / 1e4 for j in range(5)] for i in range(4)}))
    assert (analysis.outliers.sure.slow, analysis.outliers.sure.fast) == (0, 0)
    assert study_rows(analysis, 1)[0]["verdict"] == "stands out as slow"
    assert any("fleets of equal devices one is called different" in line for line in study_lines(analysis))


def test_a_spread_of_devices_that_repeats_hide_is_said_in_words() -> None:
    hidden = {f"d{i}": [1.0, 2.0, 3.0] for i in range(6)}
    (line,) = (line for line in study_lines(analyze(table(hidden))) if line.startswith("spread"))
    assert "between devices none visible beside the spread of the repeats (at most 18.25 %), between repeats" in line
    assert "0.00" not in line


def test_the_table_of_devices_has_the_slowest_first() -> None:
    analysis = analyze(table({**FLEET, "slow": [1.2, 1.2, 1.2]}))
    rows = study_rows(analysis, 3)
    assert [row["device"] for row in rows] == ["slow", "d11", "d10"]
    assert [row["verdict"] for row in rows] == ["certainly slow", "not unusual", "not unusual"]
    assert len(study_rows(analysis, None)) == 13


def test_a_single_device_has_no_verdict() -> None:
    (row,) = study_rows(analyze(table({"only": [1.0, 1.1, 1.2]})), None)
    assert row["verdict"] == "nothing to compare it with"


def test_a_rejected_device_has_its_reason() -> None:
    lines = check_lines(check(learn(table(FLEET)), table({"new": [1.3, 1.3, 1.3]})))
    assert lines[0].startswith("new: REJECTED: 29.")
    promise = "machine rejected; false alarms 1 %, if days do not differ (control); slower by less than 1 % is accepted"
    assert f"{promise} (matter)" in map(plain, lines)


def test_what_is_certain_but_does_not_matter_is_said() -> None:
    small = {f"d{i:02d}": [1 + i / 1e5, 1.0001 + i / 1e5, 0.9999 + i / 1e5] for i in range(30)}
    analysis = analyze(table({**small, "slow": [1.006, 1.0061, 1.0059]}))
    lines = study_lines(analysis)
    assert any("1 slow, 0 fast, of which 1 by less than 1 %" in line for line in lines)
    assert any("remove     no device: those that are certainly slow lose less than 1 %" in line for line in lines)
    assert study_rows(analysis, 1)[0]["verdict"] == "certainly slow, too little to matter"


@pytest.mark.parametrize(("reason", "shown"), [("", "d1: permanent, 3 of 3 repeats wrong"), ("x", "no verdict: x")])
def test_what_devices_computed_is_below_the_rest(reason: str, shown: str) -> None:
    dissent = Dissent(device="d1", verdict="permanent", wrong=3, repeats=3, first="sum")
    votes = (Electorate(what="gpu", devices=4, repeats=12, hours=2.0, dissents=(dissent,), no_verdict=reason),)
    lines = study_lines(replace(analyze(table(FLEET)), corruption=votes))
    assert any(line.startswith(f"            {shown}") for line in lines)
    assert any("3 devices without dissent" in line for line in lines) == (not reason)


def test_a_removal_that_gains_nothing_says_what_training_waits_for() -> None:
    steady = {f"d{i:02d}": [1 + i / 1e4, 1.001 + i / 1e4, 0.999 + i / 1e4, 1 + i / 1e4] for i in range(20)}
    lines = study_lines(analyze(table({**steady, "slow": [1.1] * 4, "unsteady": [1.0, 1.2, 1.2, 1.2]})))
    assert "remove     slow (certainly slow by 1 % or more)" in lines
    rows = study_rows(analyze(table({**steady, "slow": [1.1] * 4, "unsteady": [1.0, 1.2, 1.2, 1.2]})), 2)
    assert [row["verdict"] for row in rows] == ["perhaps slow (its fastest run: -0.1 %)", "certainly slow"]
    assert any("would still lose 19.9 % by waiting for unsteady." in line for line in lines)
