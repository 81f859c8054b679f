"""The parts of the scaling model against arithmetic done by hand."""

from dataclasses import replace

import pytest

from vernier.lab.planning.plan import (
    NETWORKS,
    Network,
    Workload,
    all_reduce_s,
    compute_s,
    predict,
    reduce_gradients_s,
    ring_s,
)

WORK = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=100_000_000, half_batch=0, spread=0)
SLOW = Network(name="slow", per_host=8, link_gb_s=10, link_us=0, host_gb_s=1, host_us=0)


def test_a_ring_moves_each_byte_nearly_twice() -> None:
    assert all_reduce_s(8_000_000_000, 4, 1.0, 0) == pytest.approx(2 * 3 / 4 * 8)
    assert all_reduce_s(8, 1, 1.0, 5) == 0


def test_with_many_members_and_little_data_the_tree_wins() -> None:
    assert all_reduce_s(1000, 1024, 10, 10) == pytest.approx(2 * 10 * 10e-6 + 2 * 1000 / 10e9)


def test_gradients_travel_inside_hosts_and_between_them() -> None:
    inside = all_reduce_s(100_000_000, 8, 10, 0)
    assert reduce_gradients_s(100_000_000, 8, SLOW) == pytest.approx(inside)
    assert reduce_gradients_s(100_000_000, 32, SLOW) == pytest.approx(inside + all_reduce_s(100_000_000, 4, 1, 0))


def test_one_ring_sends_the_same_over_the_network_of_hosts_however_many_processes_they_have() -> None:
    two_each = Network(name="two", per_host=2, link_gb_s=10, link_us=1, host_gb_s=1, host_us=100)
    alone = Network(name="one", per_host=1, link_gb_s=10, link_us=1, host_gb_s=1, host_us=100)
    size = 100_000_000
    assert ring_s(size, 4, two_each) == pytest.approx(1.5 * (0.1 + 2 * 100e-6 + 2 * 1e-6))
    assert ring_s(size, 2, alone) == pytest.approx(1.0 * (0.1 + 2 * 100e-6))
    assert ring_s(size, 2, two_each) == pytest.approx(1.0 * (0.01 + 2 * 1e-6)), "within one host"
    assert ring_s(size, 1, alone) == 0
    by_host = reduce_gradients_s(size, 4, two_each)
    assert reduce_gradients_s(size, 4, two_each, one_ring=True) == ring_s(size, 4, two_each) > by_host


def test_one_ring_makes_a_step_on_several_hosts_slower() -> None:
    ring = replace(WORK, one_ring=True)
    assert predict(ring, 32, 3200, SLOW).reduce_ms > predict(WORK, 32, 3200, SLOW).reduce_ms


def test_a_measured_batch_takes_what_was_measured_and_a_small_one_more_per_image() -> None:
    work = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=1, half_batch=10)
    assert compute_s(work, 100) == pytest.approx(0.1)
    assert compute_s(work, 10) / 10 > compute_s(work, 100) / 100
    assert compute_s(work, 1000) / 1000 == pytest.approx(compute_s(work, 100) / 100)


def test_a_batch_that_does_not_divide_waits_for_the_largest_share() -> None:
    even, odd = predict(WORK, 4, 400, NETWORKS["dgx-h100"]), predict(WORK, 4, 397, NETWORKS["dgx-h100"])
    assert odd.images_per_s_total == pytest.approx(even.images_per_s_total * 397 / 400)


def test_small_batches_are_named_as_the_limit() -> None:
    work = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=1, half_batch=10)
    assert predict(work, 32, 128, NETWORKS["dgx-h100"]).limit == "small batch"


def test_what_travels_behind_the_backward_pass_costs_only_its_tail() -> None:
    row = predict(WORK, 8, 800, NETWORKS["dgx-a100"])
    assert row.exposed_ms == pytest.approx(row.reduce_ms * (25 << 20) / 100_000_000)
    assert row.efficiency > 0.99


def test_a_slow_network_is_the_limit_and_named() -> None:
    row = predict(WORK, 32, 3200, SLOW)
    assert row.limit == "network"
    assert row.exposed_ms == pytest.approx(row.reduce_ms - 1000 * 0.1 * 2 / 3)


def test_input_caps_a_host() -> None:
    capped = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=1, host_images_per_s=4000, spread=0)
    row = predict(capped, 16, 1600, SLOW)
    assert row.limit == "input"
    assert row.images_per_s_total == pytest.approx(2 * 4000)


def test_the_slowest_of_many_is_waited_for() -> None:
    def efficiency(devices: int) -> float:
        spread = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=1, spread=0.05)
        return predict(spread, devices, 100 * devices, NETWORKS["dgx-h100"]).efficiency

    assert efficiency(4096) < efficiency(64) < efficiency(8) < 1
