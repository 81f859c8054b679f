"""Collecting steps until they are reported, and how long each took by the clock that can know it."""

import pytest
import torch

from tests.queueing_device import QueueingCpu, VirtualClock, WindowsCpu
from vernier.devices import Device
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.training.window import LOG_EVERY_S, StepWindow, WindowValues

ALONE = World(Topology())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    virtual = VirtualClock()
    monkeypatch.setattr("vernier.engine.training.window.now_s", virtual)
    return virtual


def report(window: StepWindow, device: Device, clock: VirtualClock, read_s: float = 0.0) -> list[float]:
    """The times of a window's steps, as the loop asks for them; reading the losses takes a while."""
    device.synchronize()
    synchronised_s = clock.now_s
    clock.now_s += read_s
    return window.close(synchronised_s)


def test_with_a_number_of_steps_it_is_full_then_and_never_overdue(clock: VirtualClock) -> None:
    window = StepWindow(Cpu(), 3)
    for full in (False, False, True):
        clock.now_s += 10 * LOG_EVERY_S
        window.add(torch.tensor(1.0), 0.0)
        assert (window.is_full, window.overdue) == (full, False)


@pytest.mark.parametrize("kind", [QueueingCpu, WindowsCpu])
def test_without_a_number_of_steps_the_time_since_the_last_report_decides(
    clock: VirtualClock, kind: type[QueueingCpu]
) -> None:
    """Elsewhere times were added up that a queueing device did not have; now a slow host is late, a slow device not."""
    device = kind(clock, device_s=LOG_EVERY_S, host_s=LOG_EVERY_S / 4)
    window = StepWindow(device, 0)
    for overdue in (False, False, False, True):
        device.end_step()
        window.add(torch.tensor(1.0), 0.0)
        assert window.overdue == overdue
    report(window, device, clock)
    assert not window.overdue


def test_on_the_host_clock_a_step_lasts_until_the_next_begins(clock: VirtualClock) -> None:
    window = StepWindow(Cpu(), 3)
    for seconds in (1.0, 2.0):
        clock.now_s += seconds
        window.add(torch.tensor(1.0), 0.0)
    assert window.timing == "host clock"
    assert report(window, Cpu(), clock, read_s=0.5) == [1.0, 2.5]
    clock.now_s += 4.0
    window.add(torch.tensor(1.0), 0.0)
    assert report(window, Cpu(), clock) == [4.0]
    clock.now_s += 100.0  # an evaluation
    window.restart()
    clock.now_s += 1.0
    window.add(torch.tensor(1.0), 0.0)
    assert report(window, Cpu(), clock) == [1.0]


def test_events_give_the_time_on_the_device_and_nothing_waits_for_it(clock: VirtualClock) -> None:
    """The time in which the host queued a step was recorded: 27 ms for steps of 44 ms."""
    device = QueueingCpu(clock, device_s=0.044, host_s=0.027)
    window = StepWindow(device, 4)
    for _ in range(4):
        device.end_step()
        window.add(torch.tensor(1.0), 0.0)
    assert device.waits == 0
    assert window.timing == "device events"
    assert report(window, device, clock, read_s=0.01) == pytest.approx([0.044, 0.044, 0.044, 0.054])
    assert device.waits == 1
    assert clock.now_s - 1000.0 == pytest.approx(3 * 0.044 + 0.054)


def test_a_device_that_waits_for_the_host_counts_the_host(clock: VirtualClock) -> None:
    device = QueueingCpu(clock, device_s=0.010, host_s=0.0)
    window = StepWindow(device, 3)
    for wait_s in (0.0, 0.5, 0.0):
        clock.now_s += wait_s  # for data; the device runs dry
        device.end_step()
        window.add(torch.tensor(1.0), wait_s)
    assert report(window, device, clock) == pytest.approx([0.010, 0.500, 0.010])


def test_where_only_windows_are_known_each_step_has_the_mean_and_the_sum_is_right(clock: VirtualClock) -> None:
    device = WindowsCpu(clock, device_s=0.044, host_s=0.027)
    window = StepWindow(device, 4)
    for _ in range(4):
        device.end_step()
        window.add(torch.tensor(1.0), 0.0)
    assert window.timing == "windows"
    assert report(window, device, clock) == pytest.approx([0.044] * 4)
    assert device.waits == 1


def test_a_window_of_one_step_is_synchronised(clock: VirtualClock) -> None:
    window = StepWindow(WindowsCpu(clock, device_s=0.044, host_s=0.027), 1)
    window.add(torch.tensor(1.0), 0.0)
    assert window.timing == "synchronised"


@pytest.mark.parametrize(("kind", "timing"), [(WindowsCpu, "synchronised"), (QueueingCpu, "device events")])
def test_each_step_can_be_synchronised_where_it_must_be(
    clock: VirtualClock, kind: type[QueueingCpu], timing: str
) -> None:
    device = kind(clock, device_s=0.0, host_s=0.0)
    window = StepWindow(device, 3, each=True)
    for seconds in (0.04, 0.05, 0.06):
        device.queue(seconds)
        window.add(torch.tensor(1.0), 0.0)
    assert window.timing == timing
    assert device.waits == (3 if timing == "synchronised" else 0)
    assert report(window, device, clock) == pytest.approx([0.04, 0.05, 0.06])


def test_losses_are_those_of_each_step_and_are_gone_after_closing(clock: VirtualClock) -> None:
    window = StepWindow(Cpu(), 2)
    for loss in (1.0, 2.0):
        window.add(torch.tensor(loss), 0.1, torch.tensor(10 * loss))
    hits, scale = torch.tensor([5.0, 6.0]), torch.tensor([3.0])
    assert window.read(ALONE, hits, scale) == WindowValues(
        losses=[1.0, 2.0], own_losses=[1.0, 2.0], gradient_norms=[10.0, 20.0], sums=[5.0, 6.0], own=[3.0]
    )
    assert window.wait_s == [0.1, 0.1]
    window.close(clock.now_s)
    assert (len(window), window.losses, window.wait_s) == (0, [], [])


def test_a_loss_of_all_processes_has_that_of_this_one_beside_it(clock: VirtualClock) -> None:
    """Divergence names the processes whose own loss was not finite."""
    window = StepWindow(QueueingCpu(clock, device_s=0.0, host_s=0.0), 2)
    window.add(torch.tensor(3.0), 0.0, own_loss=torch.tensor(2.0))
    window.add(torch.tensor(4.0), 0.0)
    values = window.read(World(Topology()), torch.zeros(0), torch.tensor([7.0]))
    assert (values.losses, values.own_losses, values.own) == ([3.0, 4.0], [2.0, 4.0], [7.0])
