"""Logs of other systems: what they do not say, and what they do say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done

Runner = Callable[..., Done]


def _mlperf_log(path: Path, benchmark: str, batch: int, images: int) -> Path:
    settings = {
        "submission_benchmark": benchmark,
        "submission_platform": "1xNVIDIA DGX A100",
        "global_batch_size": batch,
        "train_samples": images,
        "seed": len(path.name),
    }
    records: list[dict[str, Any]] = [
        {"key": key, "value": value, "time_ms": 0, "event_type": "POINT_IN_TIME"} for key, value in settings.items()
    ]
    for epoch in range(1, 9):
        for what, offset_ms in (("start", 0), ("stop", 900 + epoch)):
            record = {"key": f"epoch_{what}", "time_ms": 1000 * epoch + offset_ms, "metadata": {"epoch_num": epoch}}
            records.append(record)
    path.write_text("".join(f":::MLLOG {json.dumps(record)}\n" for record in records))
    return path


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    return (
        _mlperf_log(tmp_path / "ssd.txt", "ssd", 912, 117_266),
        _mlperf_log(tmp_path / "resnet_0.txt", "resnet", 3264, 1_281_167),
    )


def test_the_devices_of_a_log_that_does_not_name_them_are_not_one(
    logs: tuple[Path, Path], tmp_path: Path, vernier_here: Runner
) -> None:
    """An MLPerf log of eight GPUs was "9,787 img/s in all on 1 device"."""
    done = vernier_here("compare", str(logs[0]), str(logs[0]))
    assert done.code == 0, done.err
    assert "(devices: not in the log)" in done.out
    assert "1 device" not in done.out
    page = tmp_path / "page.html"
    assert vernier_here("report", str(logs[0]), "--out", str(page)).code == 0
    assert "not in the log" in page.read_text()


def test_logs_of_different_networks_are_not_alike(logs: tuple[Path, Path], vernier_here: Runner) -> None:
    """A ResNet-50 log beside SSD logs differed in "seed" only: network, batch and data were not compared."""
    done = vernier_here("compare", *map(str, logs))
    assert done.code == 2
    assert "A trains ssd, global batch 912; B trains resnet50, global batch 3,264" in done.err
    told = vernier_here("compare", *map(str, logs), "--different-work", "--json").json()
    assert set(told["differs"]["work"]) == {"network", "global batch"}
    assert told["differs"]["words"]["data"] == ["117,266 training images", "1,281,167 training images"]
    assert "seed" in told["differs"]["settings"]  # listed beside them, as people asked for


def test_the_page_marks_network_batch_and_data_as_different(
    logs: tuple[Path, Path], tmp_path: Path, vernier_here: Runner
) -> None:
    """The page of such logs said "1 differ: seed"."""
    page = tmp_path / "page.html"
    assert vernier_here("report", *map(str, logs), "--out", str(page)).code == 0
    rows = page.read_text().split("<tr")
    for part in ("network", "batch", "data"):
        assert any('class="differs"' in row and f">{part}</td>" in row for row in rows), part


def test_no_rate_per_device_is_written_from_a_log_without_devices(
    logs: tuple[Path, Path], tmp_path: Path, vernier_here: Runner
) -> None:
    """A converted log claimed one device and the batch of all of them for it."""
    out = tmp_path / "log.json"
    assert vernier_here("convert", str(logs[0]), "--to", "dllogger", "--out", str(out)).code == 0
    parameters = out.read_text().splitlines()[0]
    assert "world_size" not in parameters
    assert '"batch_size"' not in parameters
