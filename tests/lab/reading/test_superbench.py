"""Results of SuperBench: JSON lines, one object per node."""

import json
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.reading.columns import ColumnOptions
from vernier.lab.reading.superbench import read_superbench
from vernier.lab.reading.tables import read_table

METRIC = "resnet_models/pytorch-resnet50/fp32_train_step_time"


def _results(path: Path) -> Path:
    nodes = [
        {
            "node": f"vm{node}",
            **{f"{METRIC}:{device}": 100.0 + node + device for device in range(4)},
            **{f"gemm-flops/fp64_flops:{device}": 9000.0 for device in range(4)},
            "mem-bw/return_code": 0,
        }
        for node in range(2)
    ]
    path.write_text("".join(json.dumps(node) + "\n" for node in nodes))
    return path


def test_every_device_of_every_node_is_a_device_of_its_host(tmp_path: Path) -> None:
    table = read_table([_results(tmp_path / "results-summary.jsonl")], ColumnOptions(columns={"step_time": METRIC}))
    assert (table.unit, table.slow_is_high, len(table.rows)) == ("ms", True, 8)
    assert {(row.device, row.host, row.value) for row in table.rows} >= {
        ("vm1-3", "vm1", 104.0),
        ("vm0-0", "vm0", 100.0),
    }


PUBLISHED = """{"node": "sb-validation-01", \
"bert_models/pytorch-bert-base/steptime_train_float32": 114.59167010616511, \
"bert_models/pytorch-bert-base/throughput_train_float32": 279.8794623591105, \
"gemm-flops/FP64:0": 9031.23, "gemm-flops/FP64:1": 9040.85, "gemm-flops/FP64:2": 9010.56, \
"gemm-flops/FP64:3": 9041.26, "mem-bw/return_code":0, "mem-bw/H2D_Mem_BW:0": 25.6, "mem-bw/H2D_Mem_BW:1": 25.8}
"""
"""The beginning of tests/analyzer/test_results.jsonl of github.com/microsoft/superbenchmark (MIT)."""


@pytest.mark.parametrize(
    ("metric", "unit", "rows", "slow_is_high"),
    [
        ("gemm-flops/FP64", "GFLOP/s", 4, False),
        ("mem-bw/H2D_Mem_BW", "GB/s", 2, False),
        ("bert_models/pytorch-bert-base/steptime_train_float32", "ms", 1, True),
        ("bert_models/pytorch-bert-base/throughput_train_float32", "samples/s", 1, False),
    ],
)
def test_published_results_have_the_units_of_their_metrics(
    tmp_path: Path, metric: str, unit: str, rows: int, slow_is_high: bool
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(PUBLISHED)
    table = read_table([path], ColumnOptions(columns={"step_time": metric}))
    assert (table.unit, len(table.rows), table.slow_is_high) == (unit, rows, slow_is_high)


def test_the_metric_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"which column of .* is the step time.*gemm-flops/fp64_flops"):
        read_table([_results(tmp_path / "results-summary.jsonl")])


@pytest.mark.parametrize("text", ["", "{", '{"node": "vm0"}', '{"step": 1}\n{"step": 2}', "a,b\n1,2"])
def test_other_files_are_none_of_it(text: str) -> None:
    assert read_superbench(text) is None
