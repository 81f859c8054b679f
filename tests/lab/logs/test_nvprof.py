"""nvprof's GPU traces."""

from pathlib import Path

import pytest

from tests.report.nvprof_trace import NVPROF
from vernier.errors import ConfigError
from vernier.lab.logs.nvprof import looks_like_trace, read_trace


def test_a_trace_gives_one_row_per_device(tmp_path: Path) -> None:
    assert looks_like_trace(NVPROF)
    (row,), notes = read_trace(tmp_path / "resnet_4242_1646195998_c002-004.csv", NVPROF)
    assert (row.device, row.repeat, row.value) == ("c002-004-0", "1646195998", 3.0)
    assert row.sensors == {"freq": 1500.0, "temp": 43.0, "power": pytest.approx(82.091)}
    assert len(notes) == 1


def test_a_trace_without_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gives units"):
        read_trace(tmp_path / "x.csv", NVPROF.replace("s,ms,", "1,2,"))
