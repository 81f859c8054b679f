import json
from pathlib import Path

import pytest

from tests.report.run_dirs import encode_telemetry
from vernier.lab.records.telemetry import Sample, TelemetryEnd, TelemetryHeader, decode_telemetry

FILES = sorted((Path(__file__).parents[2] / "golden/0.1").rglob("telemetry.jsonl"))
STAMPS = ("schema", "time")
"""Keys that the file adds to each record."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_file_of_version_0_1_is_read_and_written_alike(path: Path) -> None:
    trees = [json.loads(line) for line in path.read_text().splitlines()]
    records = decode_telemetry(trees)
    assert isinstance(records[0], TelemetryHeader)
    assert isinstance(records[-1], TelemetryEnd)
    written = [json.loads(json.dumps(encode_telemetry(record))) for record in records]
    assert written == [{k: v for k, v in tree.items() if k not in STAMPS} for tree in trees]


def test_damaged_records_and_kinds_of_a_newer_version_are_left_out() -> None:
    sample = {"kind": "sample", "device_kind": "cpu", "device": 0, "t_s": 1.0, "power_w": 5}
    trees = [sample, {**sample, "power_w": "much"}, {"kind": "sample"}, {"kind": "forecast"}, {}]
    assert decode_telemetry(trees) == [Sample(device_kind="cpu", device=0, t_s=1.0, power_w=5.0)]


def test_readings_that_are_not_there_have_no_key() -> None:
    tree = encode_telemetry(Sample(device_kind="cpu", device=0, t_s=1.0, throttle=()))
    assert tree == {"kind": "sample", "device_kind": "cpu", "device": 0, "t_s": 1.0, "session": 0, "throttle": []}
