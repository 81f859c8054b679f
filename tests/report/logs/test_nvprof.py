"""nvprof's GPU traces."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.report.logs.nvprof import looks_like_trace, read_trace

NVPROF = """\
==1234== NVPROF is profiling process 1234, command: python train.py
==1234== Profiling result:
"Start","Duration","Grid X","Device","Context","Stream","System","Name","Correlation_ID"
s,ms,,,,,,,
1.0,2.0,1,"Tesla V100 (0)",1,7,,"gemm",1
0.5,,,"Tesla V100 (0)",,,"900/877","[SM/Memory Clock (MHz)]",
1.5,,,"Tesla V100 (0)",,,"1500/877","[SM/Memory Clock (MHz)]",
1.6,,,"Tesla V100 (0)",,,"82091/300000","[Power/Limit (mW)]",
1.7,,,"Tesla V100 (0)",,,"43","[Temperature (C)]",
2.0,4.0,1,"Tesla V100 (0)",1,7,,"gemm",2
2.5,9.0,1,"Tesla V100 (0)",1,7,,"[CUDA memcpy HtoD]",3
2.6,0.5,1,"Tesla V100 (0)",1,7,,"small",4
"""


def test_a_trace_gives_one_row_per_device(tmp_path: Path) -> None:
    assert looks_like_trace(NVPROF)
    (row,), notes = read_trace(tmp_path / "resnet_4242_1646195998_c002-004.csv", NVPROF)
    assert (row.device, row.repeat, row.value) == ("c002-004-0", "1646195998", 3.0)
    assert row.sensors == {"freq": 1500.0, "temp": 43.0, "power": pytest.approx(82.091)}
    assert len(notes) == 1


def test_a_trace_without_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gives units"):
        read_trace(tmp_path / "x.csv", NVPROF.replace("s,ms,", "1,2,"))
