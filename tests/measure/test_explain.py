"""A training explained without starting it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vernier import recipes
from vernier.measure.explain import _matmul_flops, _sparkline, explain
from vernier.records.codec import encode
from vernier.records.run import RunSummary, TrainingSpeed
from vernier.store import RunDir

CONFIG = recipes.load("nvidia-resnet50-90e")


def explained(runs: Path) -> list[str]:
    result = explain(
        CONFIG,
        images=10_240,
        images_from="counted",
        classes=1000,
        runs=runs,
        notes=("a note",),
        warnings=("a warning",),
        resumed=None,
    )
    return result.lines()


def test_everything_derived_is_in_the_lines(tmp_path: Path) -> None:
    text = "\n".join(explained(tmp_path))
    for words in (
        "train resnet50 (25.6 M parameters",
        "10,240 training images (counted)",
        "5 per epoch, 450 in total",
        "0.256 per 256 x 2,048 = 2.048",
        "GiB per process",
        "GFLOP/s of matrix products here",
        "note       a note",
        "warning    a warning",
    ):
        assert words in text


def test_the_time_is_that_of_a_run_of_the_same_work(tmp_path: Path) -> None:
    result = explain(
        CONFIG, images=10_240, images_from="", classes=1000, runs=tmp_path, notes=(), warnings=(), resumed=None
    )
    run = RunDir.create(tmp_path, "earlier")
    run.write_config({})
    speed = TrainingSpeed(images_per_s_total=1024.0, images_per_s_per_device=1024.0, devices=1, method="")
    run.write_status("finished", summary=encode(RunSummary(ran=result.ran, training=speed)))
    again = explain(
        CONFIG, images=10_240, images_from="", classes=1000, runs=tmp_path, notes=(), warnings=(), resumed=None
    )
    assert again.expected is not None
    assert again.expected.low_s == again.expected.high_s == pytest.approx(450 * 2048 / 1024)
    assert "earlier" in again.expected.basis


def test_a_curve_in_one_line() -> None:
    assert _sparkline([0.0, 0.5, 1.0]) == "▁▅█"


def test_matrix_products_are_measured() -> None:
    assert _matmul_flops(0.01) > 1e8


def test_explaining_does_not_import_torch() -> None:
    code = (
        "import sys; from vernier.cli import main; code = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    arguments = ["train", "mlperf-ssd", "--explain", "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ran"]["network"] == "ssd300-resnet34"
