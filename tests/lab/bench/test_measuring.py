"""The measuring loop against loads of known speed; the clock is simulated, so nothing depends on the machine."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from vernier.lab.bench import measuring as bench
from vernier.lab.bench import progress
from vernier.lab.bench.measuring import compute_figures, is_precise, is_steady, measure, warm_up
from vernier.lab.bench.progress import PhaseWatch
from vernier.lab.records.bench import Plan


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
    monkeypatch.setattr(progress, "now_s", simulated)
    return simulated


def test_warm_up_ends_when_steps_are_steady_and_not_before(clock: Clock) -> None:
    slow_start = [9.0, 4.0, 2.0, 1.8, 1.5, 1.3, 1.2, 1.1, 1.05]
    samples = warm_up(FakeLoad(clock, itertools.chain(slow_start, itertools.repeat(1.0))), Plan(warmup_max_seconds=1e6))
    assert samples.steady
    assert samples.step_s[: len(slow_start)] == pytest.approx(slow_start)
    assert len(slow_start) + 5 < len(samples.step_s) < 30


def test_steps_that_never_become_steady_are_marked(clock: Clock) -> None:
    samples = warm_up(FakeLoad(clock, (2.0**-i * 100 for i in itertools.count())), Plan(warmup_max_seconds=90.0))
    assert not samples.steady


def test_all_but_measuring_takes_no_longer_than_planned(clock: Clock) -> None:
    """Steps of 4 s: without a limit warm-up and phases would take 21 of them."""
    plan = Plan(precision=0.0001, max_seconds=20, warmup_max_seconds=10, extra_max_seconds=18)
    watch = PhaseWatch(started_s=clock.now - 6)
    samples = measure(FakeLoad(clock, itertools.repeat(4.0)), plan, watch=watch)
    assert len(samples.step_s) == 5
    assert not samples.warmup.steady
    assert len(samples.warmup.step_s) == 2
    assert len(samples.split_s["forward"]) == 1
    assert watch.spent_s["start-up"] + watch.spent_s["warm-up"] + 4 <= 18


def test_compiling_in_the_first_step_leaves_time_to_warm_up(clock: Clock) -> None:
    plan = Plan(steps=3, warmup_max_seconds=10, extra_max_seconds=18)
    lengths = itertools.chain([60.0], itertools.repeat(0.2))
    assert warm_up(FakeLoad(clock, lengths), plan, watch=PhaseWatch(compiles=True)).steady
    lengths = itertools.chain([60.0], itertools.repeat(0.2))
    assert len(warm_up(FakeLoad(clock, lengths), plan, watch=PhaseWatch()).step_s) == 1


def test_noise_alone_does_not_prevent_steadiness() -> None:
    noisy = [5.0, *[1.0, 1.3, 0.9, 1.2, 1.1] * 4]
    assert is_steady(noisy)
    assert not is_steady([5.0, *[1.0] * 5, *[1.5] * 5])  # a jump is no noise
    assert not is_steady([1.0] * 4)


def test_measuring_lasts_until_the_precision_target_is_reached(clock: Clock) -> None:
    lengths = itertools.cycle([1.0, 1.1, 0.9, 1.05, 0.95])
    load = FakeLoad(clock, lengths)
    loose = measure(load, Plan(precision=0.2, max_seconds=1e6, split_steps=0))
    tight = measure(FakeLoad(clock, lengths), Plan(precision=0.001, max_seconds=1e6, split_steps=0))
    assert loose.reached_precision is True
    assert tight.reached_precision is True
    assert len(loose.step_s) < len(tight.step_s)
    assert is_precise(tight.step_s, 0.001)


def test_a_process_alone_measures_until_its_steps_have_an_interval(clock: Clock) -> None:
    """Several processes have the interval of processes: then a few precise steps of each are enough."""
    rng = np.random.default_rng(1)
    varying = [float(s) for s in 1 + 0.001 * rng.standard_normal(2000)]
    among, alone = (
        measure(FakeLoad(clock, iter(varying)), Plan(precision=0.01, max_seconds=1e6, split_steps=0, alone=alone))
        for alone in (None, True)
    )
    assert (len(among.step_s), among.reached_precision) == (30, True)
    assert len(alone.step_s) >= 200
    assert alone.reached_precision is True
    assert compute_figures(alone, images=8, devices=2).images_per_s_total.low is not None


def test_steps_that_vary_slowly_are_measured_longer(clock: Clock) -> None:
    """A machine that is 10 % slower every other 25 steps: 300 of them are precise to 5 %, and not enough."""
    states = [1.0 + 0.1 * (i // 25 % 2) + 0.0001 * (i * 7 % 5) for i in range(20_000)]
    samples = measure(FakeLoad(clock, iter(states)), Plan(precision=0.05, max_seconds=1e6, split_steps=0, alone=True))
    assert len(samples.step_s) > 400
    assert samples.reached_precision is True


def test_a_precision_missed_at_the_time_limit_is_marked(clock: Clock) -> None:
    samples = measure(
        FakeLoad(clock, itertools.cycle([1.0, 5.0])), Plan(precision=0.0001, max_seconds=50, split_steps=0)
    )
    assert samples.reached_precision is False
    assert 44 <= samples.ended_s - samples.began_s <= 50


def test_a_fixed_number_of_steps_is_exact(clock: Clock) -> None:
    load = FakeLoad(clock, itertools.repeat(1.0))
    samples = measure(load, Plan(steps=7, split_steps=3))
    assert len(samples.step_s) == 7
    assert samples.reached_precision is None
    assert samples.split_s["forward"] == (0.25,) * 3


def test_figures_come_from_the_samples(clock: Clock) -> None:
    samples = measure(FakeLoad(clock, itertools.cycle([1.0, 3.0])), Plan(steps=200, split_steps=4))
    figures = compute_figures(samples, images=8, devices=2)
    total, each = figures.images_per_s_total, figures.images_per_s_per_device
    assert total.value == pytest.approx(8 / 2.0)  # images over time, not the mean of 8/1 and 8/3
    assert each.value == pytest.approx(total.value / 2)
    assert total.low is not None
    assert total.high is not None
    assert total.low < total.value < total.high
    assert figures.data_wait_share == pytest.approx(0.1)
    assert figures.compute_only_images_per_s_total == pytest.approx(4 / 0.9)
    assert figures.phases is not None
    assert figures.phases.share == pytest.approx({"forward": 0.25, "backward": 0.75})
    assert figures.step_s.n == 200
    assert figures.method == bench.METHOD


def test_the_loader_verdict() -> None:
    assert bench.bound_by(0.5) == "loader-bound"
    assert bench.bound_by(0.01) == "compute-bound"
