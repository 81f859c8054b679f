from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from vernier.data.bench import Contender, Measured, ratio


def test_ratios_are_taken_round_by_round() -> None:
    fast, slow = (Measured(Contender(name=n, kind="native", path=""), 10) for n in ("fast", "slow"))
    fast.seconds, slow.seconds = [1.0, 2.0, 4.0], [2.0, 4.0, 8.0]  # the machine slowed down; the ratio did not
    found = ratio(fast, slow)
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


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


def test_a_peer_says_what_it_cannot_read(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here("bench", "data", "--data", str(tmp_path / "none"), "--rounds", "1")
    assert done.code == 2
    assert "does not exist" in done.err
