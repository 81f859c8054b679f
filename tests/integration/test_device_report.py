"""`make test-device`: its report, and devices that it refuses."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tests.conftest import REPO
from tests.device_suite.__main__ import Results, lines

EXAMINATION = {
    "machine": {"host": "node1", "system": "Linux", "cores": 8, "instructions": ["AVX2"], "nvidia_driver": "550.54"},
    "devices": [{"device": "cuda", "index": 0, "name": "NVIDIA A100", "uuid": "GPU-1"}, {"device": "cpu"}],
    "versions": {"torch": "2.13.0", "pillow": None},
}


def report(name: str, **details: object) -> pytest.TestReport:
    values = {"location": ("", 0, ""), "keywords": {}, "outcome": "passed", "longrepr": None, "when": "call"}
    return pytest.TestReport(nodeid=f"tests/device_suite/{name}", duration=1.5, **{**values, **details})  # type: ignore[arg-type]


def test_the_report_has_the_machine_and_every_test_with_its_reason() -> None:
    results = Results()
    results.pytest_runtest_logreport(report("test_train.py::test_a"))
    skipped = ("product.py", 3, "Skipped: one device")
    results.pytest_runtest_logreport(report("test_train.py::test_b", outcome="skipped", longrepr=skipped))
    results.pytest_runtest_logreport(report("test_use.py::test_c", outcome="failed", longrepr="the driver is gone"))
    page = "\n".join(lines("cuda", EXAMINATION, results, datetime(2026, 11, 16, tzinfo=UTC)))
    for words in (
        "# Device suite on cuda: 1 passed, 1 skipped, 1 FAILED",
        "- NVIDIA driver: 550.54",
        "- devices: 0: NVIDIA A100, GPU-1",
        "- versions: torch 2.13.0\n",
        "| test_train.py::test_a | passed | 1.5 |  |",
        "| test_train.py::test_b | skipped | 1.5 | one device |",
        "| test_use.py::test_c | FAILED | 1.5 | below |",
        "## tests/device_suite/test_use.py::test_c\n\n```\nthe driver is gone\n```",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("device", "words"),
    [("cdua", "cdua is not known. Did you mean cuda"), ("", "which device? make test-device DEVICE=cuda")],
)
def test_a_wrong_device_is_a_message(device: str, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device_suite", device], cwd=REPO, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
