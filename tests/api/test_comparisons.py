"""Comparisons and studies as objects."""

import csv
import random
import sys
from pathlib import Path

import pytest

import vernier as v
from tests.report.run_dirs import step_times, write_run


@pytest.fixture
def sides(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    """Three runs each; those of B take 10 % longer."""
    quick = [write_run(tmp_path, f"quick-{i}", step_times(i)) for i in range(3)]
    slow = [write_run(tmp_path, f"slow-{i}", step_times(10 + i, mean=0.11)) for i in range(3)]
    return quick, slow


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Sixteen devices, five repeats; gpu03 is 8 % slow."""
    draws, path = random.Random(1), tmp_path / "fleet.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["serial", "time_ms"])
        for device in range(16):
            factor = 1.08 if device == 3 else 1.0
            rows.writerows([f"gpu{device:02}", 100 * factor * (1 + 0.003 * draws.gauss(0, 1))] for _ in range(5))
    return path


COLUMNS = {"step_time": "time_ms", "device": "serial"}


def test_a_slower_side_is_told_with_its_interval(sides: tuple[list[Path], list[Path]]) -> None:
    quick, slow = sides
    comparison = v.compare(quick, slow)
    assert comparison.verdict == "slower"
    assert comparison.interval is not None
    low, high = comparison.interval
    assert low < comparison.ratio < high < 0.95
    assert repr(comparison) == (
        f"Comparison(slower: B runs at {comparison.ratio:.3f} times the speed of A, "
        f"95 % interval {low:.3f} to {high:.3f})"
    )
    assert "verdict: B is slower" in str(comparison)
    html = comparison._repr_html_()
    assert "verdict: B is slower" in html
    assert all(run.name in html for run in (*quick, *slow))


def test_a_side_is_one_run_a_pattern_or_a_list(sides: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    quick, slow = sides
    assert v.compare(f"{tmp_path}/*quick-*", [str(p) for p in slow]).ratio == v.compare(quick, slow).ratio
    alone = v.compare(v.Run(quick[0]), quick[1])
    assert alone.verdict == "cannot tell"
    assert "--" not in str(alone)
    assert "insist with single_runs=True" in str(alone)
    assert v.compare(quick[0], slow[0], single_runs=True).verdict == "slower"


def test_what_cannot_be_compared_is_explained(sides: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    quick, _ = sides
    other = write_run(tmp_path, "other", step_times(3), batch=64)
    with pytest.raises(v.ConfigError, match=r"Not the same work: .*different_work=True compares them"):
        v.compare(quick[0], other)
    assert v.compare(quick[0], other, different_work=True).record.other_work
    for a, message in (([], "A names no run"), ("/no/such", "/no/such does not exist")):
        with pytest.raises(v.ConfigError, match=message):
            v.compare(a, quick[0])
    with pytest.raises(v.ConfigError, match="tolerance='x' is not a share"):
        v.compare(quick[0], quick[1], tolerance="x")


def test_a_study_names_the_slow_device(fleet: Path) -> None:
    study = v.study(fleet, columns=COLUMNS)
    assert study.slow == ("gpu03",)
    assert study.devices[0].device == "gpu03"
    assert study.devices[0].verdict == "slow"
    assert (len(study.table()), study.table()[0]["verdict"]) == (16, "certainly slow")
    assert repr(study) == "Study(16 devices, 80 runs, 1 to remove: gpu03)"
    assert "remove     gpu03" in str(study)
    html = study._repr_html_()
    assert "gpu15" in html
    assert "id=&#34;devices&#34;" in html


def test_columns_and_units_as_texts_or_mappings(fleet: Path) -> None:
    texts = v.study([str(fleet)], columns="step_time=time_ms,device=serial", units="ms")
    assert texts.analysis == v.study(fleet, columns=COLUMNS, units={"step_time": "ms"}).analysis
    assert v.study(fleet, columns={"speed": "time_ms", "device": "serial"}, units="img/s").slow == ()
    assert v.study(fleet, columns=COLUMNS, matter="10%").slow == ()


def test_what_is_no_study_is_explained(fleet: Path) -> None:
    with pytest.raises(v.ConfigError, match=r'Name it with columns=\{"step_time": \.\.\., "device": \.\.\.\}'):
        v.study(fleet)
    with pytest.raises(v.ConfigError, match=r"columns: unknown name 'devise'\. Did you mean device"):
        v.study(fleet, columns={"step_time": "time_ms", "devise": "serial"})
    with pytest.raises(v.ConfigError, match=r"has no column 'sreial'\. Did you mean serial"):
        v.study(fleet, columns={"step_time": "time_ms", "device": "sreial"})
    with pytest.raises(v.ConfigError, match="Name what to read"):
        v.study([])
    with pytest.raises(v.ConfigError, match=r"/no/such\.csv does not exist"):
        v.study("/no/such.csv")


def test_a_study_as_a_table_of_pandas(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    study = v.study(fleet, columns=COLUMNS)
    assert study.to_pandas()["device"][0] == "gpu03"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(v.ConfigError, match="pip install"):
        study.to_pandas()
