import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vernier.compat.preparing.packing import pack_raw, pack_shards
from vernier.config import Augment, Data
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import EvalOrder, TrainOrder
from vernier.data.loading.readers import EvalReader, TrainReader
from vernier.data.sources import EncodedSource, open_split
from vernier.devices.cpu import Cpu
from vernier.errors import RunFailed


def _stream(
    shapes: Path, *, workers: int, start: int = 0, world: int = 1, rank: int = 0, crop: str = "random-resized"
) -> list[torch.Tensor]:
    source = open_split(str(shapes), "train")
    reader = TrainReader(source, Data(image_px=24), Augment(crop=crop), seed=5)  # type: ignore[arg-type]
    order = TrainOrder(samples=len(source), seed=5, global_batch=12, world=world, rank=rank)
    loader = Loader(reader, batch=12 // world, workers=workers, prefetch=2)
    steps = range(start, 2 * order.steps_per_epoch)
    requests = (
        (s // order.steps_per_epoch, order.indices(s // order.steps_per_epoch, s % order.steps_per_epoch, 0))
        for s in steps
    )
    out = [torch.cat([b.images.flatten(1), b.targets[:, None]], dim=1).clone() for b in loader.batches(requests)]
    loader.close()
    return out


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_pixels_and_order_do_not_depend_on_workers(shapes: Path, workers: int) -> None:
    alone, several = _stream(shapes, workers=1), _stream(shapes, workers=workers)
    assert len(alone) == 26
    assert all(torch.equal(a, b) for a, b in zip(alone, several, strict=True))


def test_without_workers_the_asking_thread_loads_and_its_time_is_the_wait(shapes: Path) -> None:
    """--workers=0 of PyTorch's scripts: nothing is prepared ahead."""
    source, threads = open_split(str(shapes), "train"), []

    class Noting(TrainReader):
        def fill(self, epoch: int, indices: Any, out: Any) -> Any:
            threads.append(threading.current_thread())
            return super().fill(epoch, indices, out)

    reader = Noting(source, Data(image_px=24), Augment(), seed=5)
    loader = Loader(reader, batch=4, workers=0, prefetch=3)
    batches = loader.batches((0, np.arange(4 * n, 4 * n + 4)) for n in range(3))
    first = next(batches)
    assert set(threads) == {threading.current_thread()}
    assert len(threads) == 2  # the two halves of one batch
    assert first.wait_s > 0
    batches.close()
    loader.close()


@pytest.mark.parametrize("world", [2, 3])
def test_processes_split_the_same_stream(shapes: Path, world: int) -> None:
    alone = _stream(shapes, workers=2)
    parts = [_stream(shapes, workers=2, world=world, rank=r) for r in range(world)]
    assert all(torch.equal(a, torch.cat(p)) for a, p in zip(alone, zip(*parts, strict=True), strict=True))


@pytest.mark.parametrize("start", [1, 13, 25])
def test_a_stream_can_begin_anywhere(shapes: Path, start: int) -> None:
    whole, rest = _stream(shapes, workers=2), _stream(shapes, workers=2, start=start)
    assert all(torch.equal(a, b) for a, b in zip(whole[start:], rest, strict=True))


@pytest.fixture(scope="module")
def packed(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shapes as shards with restart segments and decoded, with a folder beside them."""
    out = tmp_path_factory.mktemp("packed")
    source = open_split(str(shapes), "train")
    assert isinstance(source, EncodedSource)
    pack_shards(source, out / "shards", "train", shard_bytes=60_000, restarts=True, workers=2)
    pack_raw(source, out / "raw", "train", short_side_px=28, workers=2)
    (out / "folder").symlink_to(shapes)
    return out


@pytest.mark.parametrize("name", ["folder", "shards", "raw"])
@given(workers=st.integers(1, 4), world=st.sampled_from([1, 2, 3]), start=st.integers(0, 25))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_source_gives_one_stream_for_any_workers_processes_and_start(
    packed: Path, name: str, workers: int, world: int, start: int
) -> None:
    alone = _stream(packed / name, workers=1)
    parts = [_stream(packed / name, workers=workers, world=world, rank=r, start=start) for r in range(world)]
    assert all(torch.equal(a, torch.cat(p)) for a, p in zip(alone[start:], zip(*parts, strict=True), strict=True))


class _Numbered:
    """A reader whose images are their sample's number."""

    shape = (1, 1, 1)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: np.ndarray, out: np.ndarray) -> list[int]:
        out[:, 0, 0, 0] = indices
        return indices.tolist()  # type: ignore[no-any-return]

    def targets(self, indices: np.ndarray, filled: list[list[int]]) -> list[int]:
        assert np.concatenate(filled).tolist() == indices.tolist()
        return indices.tolist()  # type: ignore[no-any-return]


@given(
    world=st.integers(1, 3),
    workers=st.integers(1, 4),
    process_batch=st.integers(1, 40),
    steps=st.integers(1, 4),
    tail=st.integers(0, 7),
    epoch=st.integers(0, 3),
    prefetch=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_brings_every_sample_exactly_once_for_any_processes_workers_and_batch(
    world: int, workers: int, process_batch: int, steps: int, tail: int, epoch: int, prefetch: int
) -> None:
    """Training leaves out the tail that fills no batch, evaluation nothing."""
    batch = world * process_batch
    samples = min(255, steps * batch + tail % batch)
    if samples < batch:
        return
    trained: list[int] = []
    evaluated: list[int] = []
    for rank in range(world):
        train = TrainOrder(samples=samples, seed=5, global_batch=batch, world=world, rank=rank)
        held_out = EvalOrder(samples=np.arange(samples), batch=process_batch, world=world, rank=rank)
        loader = Loader(_Numbered(), batch=process_batch, workers=workers, prefetch=prefetch)
        requests = [(epoch, train.indices(epoch, step, 0)) for step in range(train.steps_per_epoch)]
        for samples_read, own_requests in (
            (trained, requests),
            (evaluated, [(0, indices) for indices in held_out.own_batches()]),
        ):
            for batch_read in loader.batches(own_requests):
                assert batch_read.images[:, 0, 0, 0].tolist() == batch_read.targets
                samples_read += batch_read.targets
        loader.close()
    assert sorted(evaluated) == list(range(samples))
    assert len(set(trained)) == len(trained) == samples - samples % batch


def test_evaluation_images_are_whole_and_in_order(shapes: Path) -> None:
    source = open_split(str(shapes), "val")
    loader = Loader(EvalReader(source, Data(eval_px=32, eval_short_side_px=32)), batch=16, workers=2, prefetch=2)
    labels = torch.cat(
        [b.targets.labels for b in loader.batches((0, np.arange(i, min(i + 16, 50))) for i in range(0, 50, 16))]
    )
    assert labels.tolist() == source.labels.tolist()


def test_a_broken_image_names_its_file(tmp_path: Path, shapes: Path) -> None:
    good = next((shapes / "train").rglob("*.jpg")).read_bytes()
    (tmp_path / "train/a").mkdir(parents=True)
    (tmp_path / "train/a/good.jpg").write_bytes(good)
    (tmp_path / "train/a/zbad.jpg").write_bytes(b"\xff\xd8 not a picture")
    source = open_split(str(tmp_path), "train")
    reader = TrainReader(source, Data(image_px=24, max_bad_images="0"), Augment(), 1)
    loader = Loader(reader, batch=2, workers=1, prefetch=1)
    with pytest.raises(RunFailed, match=r"zbad\.jpg"):
        list(loader.batches([(0, np.array([0, 1]))]))


def test_leaving_early_stops_the_work_and_frees_the_buffers(shapes: Path) -> None:
    source, before = open_split(str(shapes), "train"), set(threading.enumerate())
    loader = Loader(TrainReader(source, Data(image_px=24), Augment(), 1), batch=8, workers=2, prefetch=3)
    first = loader.batches((0, np.arange(8)) for _ in range(100))
    expected = next(first).images.clone()
    first.close()
    again = next(loader.batches(iter([(0, np.arange(8))]))).images
    assert torch.equal(expected, again)
    loader.close()
    assert not set(threading.enumerate()) - before


def test_image_size_may_change_between_epochs_while_batches_are_prepared_ahead(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    augment = Augment(start_px=16, ramp_epochs=(0, 1), policy="trivial-wide", erase=0.5, repeats=2)
    reader = TrainReader(source, Data(image_px=32), augment, seed=5)
    order = TrainOrder(samples=len(source), seed=5, global_batch=40, repeats=2)
    loader = Loader(reader, batch=40, workers=2, prefetch=3)
    requests = [(e, order.indices(e, s, 0)) for e in (0, 1) for s in range(4)]
    batch_shapes = []
    for (epoch, indices), batch in zip(requests, loader.batches(requests), strict=True):
        batch_shapes.append(tuple(batch.images.shape))
        alone = np.empty((40, *reader.shape_at(epoch)), dtype=np.uint8)
        reader.fill(epoch, indices, alone)
        assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), alone)
        assert batch.targets.tolist() == source.labels[indices % len(source)].tolist()
    loader.close()
    assert batch_shapes == [(40, 3, 16, 16)] * 4 + [(40, 3, 32, 32)] * 4


def test_memory_is_not_pinned_on_the_cpu(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    loader = Loader(TrainReader(source, Data(image_px=24), Augment(), 1), batch=4, workers=1, prefetch=1)
    (batch,) = loader.batches([(0, np.arange(4))])
    loader.close()
    assert not batch.images.is_pinned()


class _Recording(Cpu):
    """Stands in for a device that copies from page-locked memory while the host goes on."""

    pins_memory = True

    def __init__(self) -> None:
        self.pinned_buffers, self.events, self.waits = 0, 0, list[int]()

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        self.pinned_buffers += 1
        return tensor.clone()

    def record_event(self) -> int:
        self.events += 1
        return self.events

    def wait_for(self, event: int) -> None:
        self.waits.append(event)


def test_a_buffer_is_filled_again_only_after_the_device_has_read_it(shapes: Path) -> None:
    reader, device = TrainReader(open_split(str(shapes), "train"), Data(image_px=24), Augment(), 1), _Recording()
    loader = Loader(reader, batch=4, workers=1, prefetch=1, device=device)
    assert device.pinned_buffers == 3
    recorded, waited = [], []
    for _ in loader.batches((0, np.arange(4)) for _ in range(6)):
        recorded.append(device.events)
        waited.append(list(device.waits))
    loader.close()
    assert recorded == [0, 1, 2, 3, 4, 5]
    assert waited == [[], [], [1], [1, 2], [1, 2, 3], [1, 2, 3]]


class _Behind(_Recording):
    """Its queue stands still: nothing of it is done before the host waits."""

    def is_done(self, event: int) -> bool:
        return event in self.waits


@pytest.mark.parametrize("prefetch", [1, 2, 4, 8])
def test_the_host_is_ahead_of_the_device_by_the_prepared_batches(shapes: Path, prefetch: int) -> None:
    """The last batch before it first waits is number prefetch + 1, counted from 0."""
    reader, device = TrainReader(open_split(str(shapes), "train"), Data(image_px=24), Augment(), 1), _Behind()
    loader = Loader(reader, batch=4, workers=1, prefetch=prefetch, device=device)
    leads = []
    for number, batch in enumerate(loader.batches((0, np.arange(4)) for _ in range(prefetch + 4))):
        batch.copied()
        leads.append(number - len(device.waits))
    loader.close()
    assert leads[: prefetch + 1] == list(range(prefetch + 1))
    assert device.waits[0] == 1


def test_a_buffer_is_free_once_its_copy_is_done_and_not_when_the_step_is(shapes: Path) -> None:
    reader, device = TrainReader(open_split(str(shapes), "train"), Data(image_px=24), Augment(), 1), _Recording()
    loader = Loader(reader, batch=4, workers=1, prefetch=1, device=device)
    for number, batch in enumerate(loader.batches((0, np.arange(4)) for _ in range(3))):
        batch.copied()
        assert device.events == number + 1  # nothing later in the step belongs to it
    loader.close()


class _Accelerator(_Recording):
    name = "elsewhere"


@pytest.mark.parametrize(
    ("cores", "image_cpu_s", "workers"),
    [(112, 0.002, 6), (14, 0.002, 6), (4, 0.002, 3), (2, 0.002, 2), (112, 0.00001, 2), (112, 0.01, 30)],
)
def test_threads_are_chosen_by_cores_and_the_cost_of_decoding(
    cores: int, image_cpu_s: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 images per second on an accelerator; a CPU's network needs the cores, and a number that was given stays."""
    moments = iter([0.0, 99.0, 100.0, 100.0 + 16 * image_cpu_s])  # the first time costs more, and does not count
    monkeypatch.setattr("vernier.data.loading.loader.thread_cpu_s", lambda: next(moments))
    monkeypatch.setattr("vernier.data.loading.loader.allowed_cores", lambda: list(range(cores)))

    def chosen(device: Cpu, given: int | None = None) -> int:
        loader = Loader(_Numbered(), batch=4, workers=given, prefetch=1, device=device, samples=3)
        loader.close()
        return loader.workers

    assert chosen(_Accelerator(), given=5) == 5
    assert chosen(Cpu()) == 2
    assert chosen(_Accelerator()) == workers


def test_a_device_that_copies_at_once_is_never_waited_for(shapes: Path) -> None:
    class AtOnce(_Recording):
        pins_memory = False

    reader, device = TrainReader(open_split(str(shapes), "train"), Data(image_px=24), Augment(), 1), AtOnce()
    loader = Loader(reader, batch=4, workers=1, prefetch=1, device=device)
    assert len(list(loader.batches((0, np.arange(4)) for _ in range(6)))) == 6
    loader.close()
    assert (device.pinned_buffers, device.events, device.waits) == (0, 0, [])


_BUFFERS_ON_RGPU = """
import json, sys
import numpy as np
from tests.device_reader import DeviceTrainReader
from vernier.config import Augment, Data
from vernier.data.loading.loader import Loader
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import open_split
from vernier_rgpu import Rgpu

DeviceTrainReader.torch_device = Rgpu().torch_device(0)
batches = []
for kind in (TrainReader, DeviceTrainReader):
    reader = kind(open_split(sys.argv[1], "train"), Data(image_px=24), Augment(), 1)
    loader = Loader(reader, batch=8, workers=2, prefetch=1, device=Rgpu())
    requests = [(0, np.arange(start, start + 8)) for start in range(0, 56, 8)]
    batches.append([[b.images.device.type, b.images.cpu().sum((1, 2, 3)).tolist(), b.targets.tolist()]
        for b in loader.batches(requests)])
    loader.close()
print(json.dumps(batches))
"""


@pytest.mark.slow
def test_batches_that_live_on_a_device_without_events_are_those_of_the_host(
    shapes: Path, on_rgpu: Callable[..., Any]
) -> None:
    host, device = on_rgpu(_BUFFERS_ON_RGPU, shapes)
    assert {kind for kind, *_ in device} == {"rgpu"}
    assert [content for _, *content in device] == [content for _, *content in host]
