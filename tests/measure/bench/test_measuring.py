"""The measuring loop against loads whose speed is known; the clock is simulated, so nothing here depends on the machine."""

import itertools
from collections.abc import Iterator

import pytest

from vernier.measure.bench import measuring as bench
from vernier.measure.bench.measuring import Plan, figures, measure, precise, steady, warm_up


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeLoad:
    """Steps of given lengths on a simulated clock, a tenth of each spent waiting for data."""

    images, devices = 8, 2

    def __init__(self, clock: Clock, lengths: Iterator[float]) -> None:
        self._clock, self._lengths, self.steps = clock, lengths, 0

    def step(self) -> float:
        length = next(self._lengths)
        self._clock.now += length
        self.steps += 1
        return length / 10

    def split(self, steps: int) -> dict[str, list[float]]:
        return {"forward": [0.25] * steps, "backward": [0.75] * steps}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    simulated = Clock()
    monkeypatch.setattr(bench, "now_s", simulated)
    return simulated


def test_warm_up_ends_when_steps_are_steady_and_not_before(clock: Clock) -> None:
    slow_start = [9.0, 4.0, 2.0, 1.8, 1.5, 1.3, 1.2, 1.1, 1.05]
    found = warm_up(FakeLoad(clock, itertools.chain(slow_start, itertools.repeat(1.0))), 1e6)
    assert found.steady
    assert found.step_s[: len(slow_start)] == pytest.approx(slow_start)
    assert len(slow_start) + 5 < len(found.step_s) < 30


def test_what_never_becomes_steady_is_said_so(clock: Clock) -> None:
    found = warm_up(FakeLoad(clock, (2.0**-i * 100 for i in itertools.count())), 150.0)
    assert not found.steady


def test_noise_alone_does_not_prevent_steadiness() -> None:
    noisy = [5.0, *[1.0, 1.3, 0.9, 1.2, 1.1] * 4]
    assert steady(noisy)
    assert not steady([5.0, *[1.0] * 5, *[1.5] * 5])  # a jump is no noise
    assert not steady([1.0] * 4)


def test_measuring_goes_on_until_the_rate_is_known_well_enough(clock: Clock) -> None:
    lengths = itertools.cycle([1.0, 1.1, 0.9, 1.05, 0.95])
    load = FakeLoad(clock, lengths)
    loose = measure(load, Plan(precision=0.2, max_seconds=1e6, split_steps=0))
    tight = measure(FakeLoad(clock, lengths), Plan(precision=0.001, max_seconds=1e6, split_steps=0))
    assert loose.reached_precision is True
    assert tight.reached_precision is True
    assert len(loose.step_s) < len(tight.step_s)
    assert precise(tight.step_s, 0.001)


def test_the_time_cap_holds_and_is_admitted(clock: Clock) -> None:
    found = measure(FakeLoad(clock, itertools.cycle([1.0, 5.0])), Plan(precision=0.0001, max_seconds=50, split_steps=0))
    assert found.reached_precision is False
    assert 50 <= found.ended_s - found.began_s < 60


def test_a_fixed_number_of_steps_is_exact(clock: Clock) -> None:
    load = FakeLoad(clock, itertools.repeat(1.0))
    found = measure(load, Plan(steps=7, split_steps=3))
    assert len(found.step_s) == 7
    assert found.reached_precision is None
    assert found.split_s["forward"] == [0.25] * 3


def test_figures_come_from_the_samples(clock: Clock) -> None:
    found = measure(FakeLoad(clock, itertools.cycle([1.0, 3.0])), Plan(steps=40, split_steps=4))
    seen = figures(found, images=8, devices=2)
    total, each = seen["images_per_s_total"], seen["images_per_s_per_device"]
    assert total["value"] == pytest.approx(8 / 2.0)  # images over time, not the mean of 8/1 and 8/3
    assert each["value"] == pytest.approx(total["value"] / 2)
    assert total["low"] < total["value"] < total["high"]
    assert seen["data_wait_share"] == pytest.approx(0.1)
    assert seen["compute_only_images_per_s_total"] == pytest.approx(4 / 0.9)
    assert seen["phases"]["share"] == pytest.approx({"forward": 0.25, "backward": 0.75})
    assert seen["step_s"]["n"] == 40
    assert seen["method"] == bench.METHOD


def test_the_loader_verdict() -> None:
    assert bench.verdict(0.5) == "loader-bound"
    assert bench.verdict(0.01) == "compute-bound"
