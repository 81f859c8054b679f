import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vernier.data.loading.order import EvalOrder, ShardedTrainOrder, TrainOrder, fair_sample


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 8), st.integers(0, 60), st.integers(0, 5))
def test_an_epoch_sees_each_sample_at_most_once_on_any_number_of_processes(
    world: int, accumulation: int, per: int, extra: int, epoch: int
) -> None:
    batch = world * accumulation * per
    samples = 3 * batch + extra
    alone = TrainOrder(samples=samples, seed=9, global_batch=batch)
    seen = []
    for step in range(alone.steps_per_epoch):
        together = [
            TrainOrder(
                samples=samples, seed=9, global_batch=batch, accumulation=accumulation, rank=r, world=world
            ).indices(epoch, step, m)
            for m in range(accumulation)
            for r in range(world)
        ]
        assert np.concatenate(together).tolist() == alone.indices(epoch, step, 0).tolist()
        seen += np.concatenate(together).tolist()
    assert len(set(seen)) == len(seen) == alone.steps_per_epoch * batch
    assert alone.steps_per_epoch == samples // batch  # the tail is left out


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 8), st.integers(1, 60))
def test_a_step_beyond_the_epoch_has_its_tail_and_then_its_first_samples_again(
    world: int, accumulation: int, per: int, extra: int
) -> None:
    batch = world * accumulation * per
    alone = TrainOrder(samples=3 * batch + extra, seed=9, global_batch=batch)
    last = alone.steps_per_epoch
    parts = [
        TrainOrder(
            samples=alone.samples, seed=9, global_batch=batch, accumulation=accumulation, rank=r, world=world
        ).indices(2, last, m)
        for m in range(accumulation)
        for r in range(world)
    ]
    together = np.concatenate(parts)
    assert together.tolist() == alone.indices(2, last, 0).tolist()
    tail = alone.samples - last * batch
    earlier = np.concatenate([alone.indices(2, step, 0) for step in range(last)])
    assert set(together[:tail].tolist()) == set(range(alone.samples)) - set(earlier.tolist())
    assert together[tail:].tolist() == (earlier[: batch - tail] + alone.samples).tolist()


def test_epochs_and_seeds_differ() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return TrainOrder(samples=100, seed=seed, global_batch=50).indices(epoch, 0, 0).tolist()

    assert len({tuple(first(s, e)) for s in (1, 2) for e in (0, 1, 2)}) == 6


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 5))
def test_evaluation_visits_every_sample_once_and_batches_never_depend_on_processes(
    samples: int, batch: int, world: int
) -> None:
    parts = [
        EvalOrder(samples=np.arange(samples), batch=batch, rank=r, world=world).own_batches() for r in range(world)
    ]
    alone = EvalOrder(samples=np.arange(samples), batch=batch).own_batches()
    assert sorted(np.concatenate([b for p in parts for b in p]).tolist()) == list(range(samples))
    assert sorted(b.tolist() for p in parts for b in p) == sorted(b.tolist() for b in alone)


@pytest.mark.parametrize(("repeats", "batch"), [(4, 16), (3, 16)])
def test_repeated_samples_come_with_other_draws_and_do_not_depend_on_processes(repeats: int, batch: int) -> None:
    order = TrainOrder(samples=100, seed=1, global_batch=batch, repeats=repeats)
    epoch = np.concatenate([order.indices(0, s, 0) for s in range(order.steps_per_epoch)])
    assert len(set(epoch.tolist())) == len(epoch)
    samples, copies = epoch % 100, epoch // 100
    assert set(copies.tolist()) == set(range(repeats))
    counts = np.unique(samples, return_counts=True)[1]
    assert len(counts) == -(-len(epoch) // repeats)
    assert set(counts[:-1].tolist()) <= {repeats, len(epoch) % repeats or repeats}
    for world in (2, 4):
        parts = [
            TrainOrder(samples=100, seed=1, global_batch=batch, repeats=repeats, rank=r, world=world)
            for r in range(world)
        ]
        step = np.concatenate([p.indices(3, 2, 0) for p in parts])
        assert np.array_equal(step, order.indices(3, 2, 0))
        for part in parts:
            mine = part.indices(3, 2, 0) % 100
            assert len(set(mine.tolist())) >= len(mine) * min(world, repeats) // repeats


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_the_sharded_order_visits_every_sample_once(
    sizes: list[int], window: int, world: int, per: int, epoch: int
) -> None:
    starts = (0, *np.cumsum(sizes).tolist())
    order = ShardedTrainOrder(samples=starts[-1], seed=3, global_batch=1, starts=starts, window=window)
    whole = order.at(epoch, np.arange(starts[-1]))
    assert sorted(whole.tolist()) == list(range(starts[-1]))
    batch = world * per
    for step in range(starts[-1] // batch):
        parts = [
            ShardedTrainOrder(
                samples=starts[-1], seed=3, global_batch=batch, starts=starts, window=window, rank=r, world=world
            ).indices(epoch, step, 0)
            for r in range(world)
        ]
        assert np.concatenate(parts).tolist() == whole[step * batch : (step + 1) * batch].tolist()


def test_the_sharded_order_stays_within_its_window_and_needs_no_memory_for_samples() -> None:
    starts = tuple(range(0, 1_000_000_001, 1_000_000))
    order = ShardedTrainOrder(samples=10**9, seed=1, global_batch=4096, starts=starts, window=4)
    batch = order.indices(0, 100_000, 0)
    assert len(np.unique(batch // 1_000_000)) <= 8
    assert len(np.unique(batch)) == 4096
    assert TrainOrder(samples=10**9, seed=1, global_batch=4096).indices(2, 7, 0).max() < 10**9


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_neighbouring_parts_of_a_batch_do_not_depend_on_the_processes(world: int, repeats: int) -> None:
    """Part 5 of 6 has the same samples, whether it is the last of one process or the only one of the sixth."""
    settings = {"samples": 100, "seed": 9, "global_batch": 24, "repeats": repeats}
    alone = TrainOrder(**settings, accumulation=6)
    parts = [
        TrainOrder(**settings, accumulation=6 // world, rank=rank, world=world, neighbouring=True).indices(1, 2, micro)
        for rank in range(world)
        for micro in range(6 // world)
    ]
    assert [part.tolist() for part in parts] == [alone.indices(1, 2, micro).tolist() for micro in range(6)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(1, 200))
def test_a_fair_sample_has_every_class_in_proportion(labels: list[int], count: int) -> None:
    kinds = np.array(sorted(labels))
    chosen = fair_sample(kinds, count)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert len(chosen) == min(count, len(kinds))
    for kind in set(labels):
        expected = labels.count(kind) * len(chosen) / len(labels)
        assert abs((kinds[chosen] == kind).sum() - expected) < 6  # rounding, where ten classes share the last places
    assert fair_sample(kinds, count).tolist() == chosen.tolist()


def test_a_fair_sample_is_random_within_a_class_and_covers_classes_of_one_size() -> None:
    kinds = np.repeat(np.arange(10), 50)
    chosen = fair_sample(kinds, 40)
    assert np.bincount(kinds[chosen]).tolist() == [4] * 10
    assert len({tuple(chosen[kinds[chosen] == kind] % 50) for kind in range(10)}) == 10
    few = fair_sample(kinds, 4)  # not the first four classes
    assert len(set(kinds[few].tolist())) == 4
    assert kinds[few].tolist() != [0, 1, 2, 3]
