"""Comparisons as objects."""

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


def test_a_slower_side_is_told_with_its_interval(sides: tuple[list[Path], list[Path]]) -> None:
    quick, slow = sides
    blocks = v.compare(quick, slow)  # all of B is younger
    assert (blocks.verdict, blocks.record.or_machine) == ("cannot tell", "slower")
    comparison = v.compare(quick, slow, other_times=True)
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
    assert v.compare(quick[0], slow[0], single_runs=True, other_times=True).verdict == "slower"


def test_what_cannot_be_compared_is_explained(sides: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    quick, _ = sides
    other = write_run(tmp_path, "other", step_times(3), batch=64)
    with pytest.raises(v.ConfigError, match=r"Not the same work: .*different_work=True compares them") as refused:
        v.compare(quick[0], other)
    assert refused.value.works == [("different_work", True)]
    assert v.compare(quick[0], other, different_work=True).record.other_work
    for a, message in (([], "names no run"), ("/no/such", "/no/such does not exist")):
        with pytest.raises(v.ConfigError, match=message):
            v.compare(a, quick[0])
    with pytest.raises(v.ConfigError) as refused:
        v.compare(quick[0], quick[1], tolerance="x")
    assert refused.value.given == {"tolerance": "x"}
