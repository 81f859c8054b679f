"""What people took the words and figures of a device study for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

Runner = Callable[..., Done]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Twelve devices with four repeats each; the last one is slow and draws less power."""
    rows = [
        f"gpu{d:02d},{100 + d / 50 + 15 * (d == 11) + r / 100},{300 - d / 10 - 40 * (d == 11)}"
        for d in range(12)
        for r in range(4)
    ]
    path = tmp_path / "fleet.csv"
    path.write_text("\n".join(["uuid,perf_ms,pwr", *rows]) + "\n")
    return path


def test_a_measured_time_is_called_step_time(fleet: Path, vernier_here: Runner) -> None:
    """The study said "correlates performance with power -0.98" of a time, which reads as: more power, less speed."""
    done = vernier_here("study", "analyze", str(fleet))
    assert done.code == 0, done.err
    assert "correlates step time with power -" in done.out
    assert "performance" not in done.out.lower()
    tree = vernier_here("study", "analyze", str(fleet), "--json").json()
    assert next(iter(tree["correlation"]["pearson"])) == "step_time"


def test_the_page_calls_it_step_time_too(fleet: Path, vernier_here: Runner) -> None:
    """The page titled a chart of milliseconds "Performance against power"."""
    done = vernier_here("report", str(fleet), "--out", str(fleet.parent / "page.html"))
    assert done.code == 0, done.err
    page = (fleet.parent / "page.html").read_text()
    assert "Step time against power" in page
    assert "Performance against" not in page


def test_what_removing_slow_devices_gains_is_a_sentence(fleet: Path, vernier_here: Runner) -> None:
    """ "pull c006-12-3: then 1.074 times" said neither what to do nor what it gains."""
    done = vernier_here("study", "analyze", str(fleet))
    assert "Without this device synchronous training would lose 0.1 % instead of 15.1 %." in done.out


def test_no_cell_of_the_devices_table_is_empty(fleet: Path, vernier_here: Runner) -> None:
    """Empty cells under "verdict" left open whether a device was good or not judged."""
    done = vernier_here("study", "analyze", str(fleet))
    rows = [line for line in done.out.splitlines() if line.strip().startswith("gpu")]
    assert rows[0].rstrip().endswith("certainly slow")
    assert all(line.rstrip().endswith("not unusual") for line in rows[1:])


def test_a_spread_of_nothing_is_explained(tmp_path: Path, vernier_here: Runner) -> None:
    """ "between devices 0.00 % (0.00 to 0.00)" looked like a fault of the program."""
    rows = [f"gpu{d},{value}" for d in range(6) for value in (100, 200, 300)]
    path = tmp_path / "noisy.csv"
    path.write_text("\n".join(["uuid,perf_ms", *rows]) + "\n")
    done = vernier_here("study", "analyze", str(path))
    assert "between devices none visible beside the spread of the repeats" in done.out
    assert "0.00 % (0.00 to 0.00)" not in done.out
