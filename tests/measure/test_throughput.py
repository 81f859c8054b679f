"""Throughput: samples over wall time, data wait, and the detection of the warm-up."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.measure.estimates import rate_estimate
from vernier.measure.throughput import Window, warmup_steps
from vernier.records.events import StepEvent


@given(
    st.lists(st.tuples(st.floats(0.001, 5), st.floats(0, 1)), min_size=1, max_size=50),
    st.integers(1, 512),
    st.integers(1, 8),
)
def test_throughput_is_samples_over_wall_time_however_it_is_cut(
    steps: list[tuple[float, float]], batch: int, devices: int
) -> None:
    """Against a simulated clock: the rate of the whole is the time-weighted rate of its parts, never their mean."""
    wall = sum(s for s, _ in steps)
    wait = sum(s * share for s, share in steps)
    whole = Window(samples=batch * len(steps), wall_s=wall, data_wait_s=wait, devices=devices)
    parts = [Window(samples=batch, wall_s=s, data_wait_s=s * share, devices=devices) for s, share in steps]
    weighted = sum(p.samples_per_s * p.wall_s for p in parts) / wall
    assert whole.samples_per_s == pytest.approx(weighted)
    assert whole.samples_per_s <= sum(p.samples_per_s for p in parts) / len(parts) * (1 + 1e-9)
    assert whole.samples_per_s_per_device * devices == pytest.approx(whole.samples_per_s)
    assert whole.compute_samples_per_s >= whole.samples_per_s or wait == pytest.approx(wall)


@pytest.mark.parametrize(
    "bad",
    [{"samples": -1, "wall_s": 1.0}, {"samples": 1, "wall_s": -1.0}, {"samples": 1, "wall_s": 1.0, "data_wait_s": 2.0}],
)
def test_impossible_windows_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="impossible"):
        Window(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "expected"),
    [([5.0, 2.0] + [1.0] * 20, 2), ([1.0] * 20, 0), ([1.0, 1.05] * 10, 0), ([3.0], 0), ([3.0, 1.0], 1), ([], 0)],
)
def test_warmup_is_detected_not_assumed(times: list[float], expected: int) -> None:
    assert warmup_steps(times) == expected


def test_samples_of_all_steps_are_divided_by_the_time_of_all_steps() -> None:
    """All samples were divided by the mean time of one step: 100 steps, 100 times too fast."""
    assert rate_estimate([0.1] * 100, 8).value == pytest.approx(80)
    assert Window(samples=800, wall_s=10.0).samples_per_s == pytest.approx(80)


def test_rates_of_devices_add_up() -> None:
    """The rate of several devices was the mean of their rates."""
    window = Window(samples=8000, wall_s=10.0, devices=8)
    assert (window.samples_per_s, window.samples_per_s_per_device) == (pytest.approx(800), pytest.approx(100))


def test_the_window_of_a_step_event_has_all_its_steps() -> None:
    event = StepEvent(step=2, epoch=0.1, loss=1.0, lr=0.1, samples=64, step_s=(0.1, 0.3), wait_s=(0.1, 0.1))
    window = Window.of_step(event)
    assert window.samples_per_s == pytest.approx(160)
    assert window.data_wait_share == pytest.approx(0.5)
    assert Window.of_step(replace(event, wait_s=(0.3, 0.3))).data_wait_share == 1


def test_windows_add_up() -> None:
    total = Window.total([Window(samples=10, wall_s=1.0), Window(samples=30, wall_s=1.0, data_wait_s=0.5)])
    assert total == Window(samples=40, wall_s=2.0, data_wait_s=0.5)
    assert Window.total([]).samples_per_s == 0
