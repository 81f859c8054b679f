"""A study's analysis and a check in words."""

from tests.measure.study.fleets import table
from vernier.measure.study.analysis import analyze
from vernier.measure.study.baseline import check, learn
from vernier.report.study.text import check_lines, study_lines, study_rows

FLEET = {f"d{i}": [1 + i / 1000, 1.001 + i / 1000, 0.999 + i / 1000] for i in range(12)}


def test_what_removing_the_slow_devices_gains() -> None:
    one = study_lines(analyze(table({**FLEET, "slow": [1.2, 1.2, 1.2]})))
    assert "pull       slow" in one
    assert any("Without this device synchronous training would lose 0.5 % instead of 19.3 %." in line for line in one)
    two = study_lines(analyze(table({**FLEET, "a": [1.2, 1.2, 1.2], "b": [1.3, 1.3, 1.3]})))
    assert any("Without these 2 devices synchronous training" in line for line in two)
    assert "pull       no device" in study_lines(analyze(table(FLEET)))


def test_sure_is_explained() -> None:
    lines = study_lines(analyze(table(FLEET)))
    assert any("sure (family-wise error below 5 %): 0 slow, 0 fast" in line for line in lines)


def test_the_table_of_devices_has_the_slowest_first() -> None:
    analysis = analyze(table({**FLEET, "slow": [1.2, 1.2, 1.2]}))
    rows = study_rows(analysis, 3)
    assert [row["device"] for row in rows] == ["slow", "d11", "d10"]
    assert [row["verdict"] for row in rows] == ["slow", "", ""]
    assert len(study_rows(analysis, None)) == 13


def test_a_rejected_device_has_its_reason() -> None:
    lines = check_lines(check(learn(table(FLEET)), table({"new": [1.3, 1.3, 1.3]})))
    assert lines[0].startswith("new: REJECTED: 29.")
    assert "machine rejected; false alarms 1 %" in lines
