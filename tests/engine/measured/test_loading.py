from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from vernier.engine.measured.loading import Contender, Measured, Round, ratio


def test_ratios_are_taken_round_by_round() -> None:
    fast, slow = (Measured(Contender(name=n, kind="native", path=""), 10) for n in ("fast", "slow"))
    for measured, seconds in (
        (fast, (1.0, 2.0, 4.0, 1.0, 2.0, 4.0)),
        (slow, (2.0, 4.0, 8.0, 2.0, 4.0, 8.0)),
    ):  # the machine slowed down; the ratio did not
        measured.rounds = [_round(s, cpu_s=5.0) for s in seconds]
    found = ratio(fast, slow)
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)
    assert ratio(fast, slow, "processor").median == 1.0
    fast.rounds, slow.rounds = fast.rounds[:5], slow.rounds[:5]
    few = ratio(fast, slow)
    assert (few.median, few.low, few.high) == (2.0, None, None)  # five rounds cannot bound a median with 95 %


def test_time_that_others_took_from_the_loader_can_be_left_out() -> None:
    two, one = (Measured(Contender(name=n, kind="native", path=""), 10) for n in ("two", "one"))
    two.rounds, one.rounds = [_round(3.0, queued_s=2.0)] * 3, [_round(2.0)] * 3
    assert ratio(two, one).median == pytest.approx(2 / 3)
    assert ratio(two, one, "undisturbed").median == 2.0


def _round(seconds: float, *, cpu_s: float = 1.0, queued_s: float = 0.0) -> Round:
    return Round(seconds=seconds, cpu_s=cpu_s, rss_bytes=1, grew_bytes=1, queued_s=queued_s)


@pytest.mark.slow
def test_bench_data_beside_pillow(vernier_here: Callable[..., Done], shapes: Path) -> None:
    done = vernier_here(
        "bench", "data", "--data", str(shapes), "--against", "pillow", "--rounds", "2", "--images", "64", "--image-px", "24", "--json"
    )  # fmt: skip
    assert done.code == 0, done.err
    found = done.json()
    assert [c["name"] for c in found["contenders"]] == ["vernier x1", "pillow x1"]
    assert all(c["images_per_s"] > 0 and c["rss_mib"] > 0 for c in found["contenders"])
    assert found["ratios"][0]["rounds"] == 2
    assert all(c["cpu_us_per_image"] > 0 for c in found["contenders"])
    assert found["contenders"][0]["grew_mib"] < 64


def test_a_peer_says_what_it_cannot_read(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here("bench", "data", "--data", str(tmp_path / "none"), "--rounds", "1")
    assert done.code == 2
    assert "does not exist" in done.err
