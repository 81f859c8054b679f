"""The speed of a run, from its events."""

from dataclasses import replace

import pytest

from tests.report.run_dirs import encode_telemetry
from vernier.lab.records.telemetry import Sample
from vernier.measure.run_summary import summarize_training
from vernier.records.events import Event, StartEvent, StepEvent
from vernier.records.run import StepTiming


def step(*step_s: float, t_s: float | None = None, samples: int = 10) -> StepEvent:
    wait_s = tuple(s / 10 for s in step_s)
    return StepEvent(step=1, epoch=0.1, loss=1.0, lr=0.1, samples=samples, step_s=step_s, wait_s=wait_s, t_s=t_s)


def session(*step_s: float) -> list[Event]:
    return [StartEvent(), step(*step_s)]


def test_a_resumed_run_has_a_warmup_in_each_session() -> None:
    events = [*session(9.0, *[1.0] * 9), *session(5.0, *[1.0] * 5), step(*[1.0] * 4)]
    speed = summarize_training(events, global_batch=8, devices=2)
    assert speed is not None
    assert speed.images_per_s_total == pytest.approx(8)
    assert speed.images_per_s_per_device == pytest.approx(4)
    assert speed.data_wait_share == pytest.approx(0.1)
    assert (speed.steps_measured, speed.warmup_steps_excluded) == (18, 2)
    assert speed.step_times == "host clock"


def window(steps: int, seconds: float, timing: StepTiming = "windows") -> StepEvent:
    """Several steps of which only the sum is known."""
    return replace(step(*[seconds / steps] * steps), step_times=timing)


def test_where_only_windows_are_known_no_figure_is_of_single_steps() -> None:
    """The mean of a window looks like steps without any spread: percentiles of it would be too good to be true."""
    windows = [window(4, 9.0), *[window(4, 4.0 + 0.1 * (i * 7 % 3)) for i in range(60)], window(2, 2.0)]
    speed = summarize_training([StartEvent(), *windows], global_batch=8, devices=1)
    assert speed is not None
    assert (speed.step_times, speed.step_s, speed.step_s_median) == ("windows", None, None)
    assert (speed.steps_measured, speed.warmup_steps_excluded) == (242, 4)
    assert speed.images_per_s_total == pytest.approx(8 * 242 / (60 * 4.1 + 2.0))
    low, high = speed.images_per_s_total_95
    assert low is not None
    assert high is not None
    assert low < speed.images_per_s_total < high


def test_the_interval_of_windows_is_that_of_as_many_samples_not_of_their_steps() -> None:
    """Windows of a hundred steps are one sample each: taken for a hundred, the interval would be far too narrow."""
    seconds = [95.0 + i for i in (3, 9, 0, 7, 5, 1, 8, 4, 6, 2)] * 20
    windows, single = ([StartEvent(), *[window(n, s * n / 100) for s in seconds]] for n in (100, 1))
    of_windows = summarize_training(windows, global_batch=8, devices=1)
    of_steps = summarize_training(single, global_batch=8, devices=1)
    assert of_windows is not None
    assert of_steps is not None
    assert of_windows.images_per_s_total_95 == pytest.approx(of_steps.images_per_s_total_95)


def test_one_session_in_windows_makes_the_run_one_of_windows() -> None:
    events = [StartEvent(), window(4, 4.0), StartEvent(), *[window(1, 1.0, "synchronised")] * 9]
    speed = summarize_training(events, global_batch=8, devices=1)
    assert speed is not None
    assert speed.step_times == "windows"
    alone = summarize_training(events[2:], global_batch=8, devices=1)
    assert alone is not None
    assert (alone.step_times, alone.step_s_median) == ("synchronised", 1.0)


def test_waits_of_the_host_are_at_most_the_time_of_the_device() -> None:
    """A queue hides waits of the host, so they may add up to more than the steps that are counted."""
    event = replace(step(*[0.5] * 8), wait_s=(0.9,) * 8, step_times="device events")
    speed = summarize_training([StartEvent(), event], global_batch=8, devices=1)
    assert speed is not None
    assert speed.data_wait_share == 1.0


def test_a_run_without_steps_has_no_speed() -> None:
    assert summarize_training([StartEvent()], global_batch=8, devices=1) is None
    assert summarize_training([], global_batch=8, devices=1) is None


def test_the_total_is_not_multiplied_by_the_number_of_devices() -> None:
    """Elsewhere each rank recorded the global rate, and the ranks were summed."""
    alone, eight = (summarize_training(session(*[0.5] * 20), global_batch=64, devices=d) for d in (1, 8))
    assert alone is not None
    assert eight is not None
    assert alone.images_per_s_total == eight.images_per_s_total == pytest.approx(128)
    assert eight.images_per_s_per_device == pytest.approx(16)


def test_a_rate_is_never_a_mean_of_rates() -> None:
    """The mean of the rates of single steps is always too high."""
    speed = summarize_training(session(*[0.1, 0.3] * 50), global_batch=8, devices=1)
    assert speed is not None
    assert speed.images_per_s_total == pytest.approx(8 / 0.2, rel=0.02)


def test_the_first_slow_steps_are_left_out_and_counted() -> None:
    speed = summarize_training(session(30.0, *[1.0] * 20), global_batch=8, devices=1)
    assert speed is not None
    assert (speed.warmup_steps_excluded, speed.images_per_s_total) == (1, pytest.approx(8))


def test_a_resumed_run_counts_the_joules_of_its_newest_session_with_steps() -> None:
    """Each session has a clock of its own, so windows and samples must be of the same one."""

    def joules(events: list[Event]) -> float:
        samples = [
            encode_telemetry(
                Sample(device_kind="cpu", device=0, t_s=float(t), session=number, energy_j=joules_per_s * t)
            )
            for t in range(8)
            for number, joules_per_s in ((0, 900.0), (1, 7.0))
        ]
        speed = summarize_training(events, global_batch=5, devices=1, telemetry=samples)
        assert speed is not None
        assert speed.energy is not None
        return speed.energy.joules_per_image

    events: list[Event] = [StartEvent(), step(1.0, 1.0, t_s=100.0), StartEvent(), step(1.0, 1.0, t_s=6.0)]
    assert joules(events) == pytest.approx(1.4)
    assert joules([*events, StartEvent()]) == pytest.approx(1.4)
