"""Measures how fast loaders make training batches (decode, augment, uint8): `vernier bench data`.

Every loader runs in its own process, so that its memory can be measured. They take turns, so that other programs on the
machine disturb them alike; ratios are taken round by round, and the interval of their median is exact. The loaders of
others are in benchmarks/peers.py.
"""

import itertools
import multiprocessing
import os
import random
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vernier.clock import now_s, utc_stamp
from vernier.config import Data, Machine, Recipe
from vernier.cores import allowed_cores
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.measure.estimates import quantile_estimate

if TYPE_CHECKING:
    from vernier.data.loading.order import TrainOrder
    from vernier.tasks.base import CountingReader

BATCH = 32
IMAGE_PX = 224
PREFETCH = 3
_IDLE_S = 0.005  # processor time in 50 ms; looking takes some too

Clock = Literal["passed", "undisturbed", "processor"]
"""Wall time; wall time without the time that a loader thread had no core; processor time."""


@frozen
class LoaderSpec:
    """One loader to measure."""

    name: str
    batches: Callable[["LoaderSpec"], Iterator[int]]
    """Loads batches for ever and yields their sizes; a function of a module, since it is called in another process."""
    path: str
    split: str = "train"
    workers: int = 1
    recipe: Recipe = Recipe(data=Data(image_px=IMAGE_PX))
    """How images are prepared; its `data.source` does not count."""
    machine: Machine = Machine()
    """Its `backend` and the size of its cache for shards at an address count."""
    round_factor: int = 1
    """How many times more images per round than other loaders; for one whose round would be too short to measure."""


@frozen
class Round:
    """One turn of a loader."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    grew_bytes: int
    """Memory of its own, beyond what the process had before it opened the data."""
    queued_s: float = 0.0
    """How long a loader thread, on average, was ready to run but had no core. 0: unknown."""
    blocked: float = 0.0
    """Share of the time that a loader thread waited for the interpreter's lock or for work, not for a core."""

    def duration_s(self, clock: Clock) -> float:
        """The duration by a clock."""
        if clock == "processor":
            return self.cpu_s
        return self.seconds - self.queued_s if clock == "undisturbed" else self.seconds


@dataclass
class LoaderRounds:
    """The rounds of one loader, each over `images` images."""

    spec: LoaderSpec
    images: int
    rounds: list[Round] = field(default_factory=list)


@frozen
class LoaderRow:
    """The figures of one loader: medians over rounds, largest memory."""

    name: str
    workers: int
    images_per_s: float
    cpu_us_per_image: float
    blocked: float
    rss_mib: int
    grew_mib: int
    rounds: int
    images_a_round: int


@frozen
class Ratio:
    """How many times faster `name` is than `against`: the median over rounds and its 95 % interval, which has no ends
    with fewer than 6 rounds."""

    name: str
    against: str
    median: float
    low: float | None
    high: float | None
    rounds: int
    clock: Clock


@frozen
class LoaderReport:
    """The result of `vernier bench data`, as `--json` prints it. `what_ran` says in words what the loaders did."""

    what_ran: str
    time: str
    cores: int
    load_average: float
    image_px: int
    batch: int
    contenders: tuple[LoaderRow, ...]
    ratios: tuple[Ratio, ...]


def loaders_of(
    path: str, machine: Machine, recipe: Recipe, *, compiled: bool
) -> tuple[list[LoaderSpec], list[tuple[str, str]]]:
    """Vernier's loader with the machine's workers, also with the compiled decoder and with one worker, and the pairs to
    compare."""
    one = LoaderSpec(
        name=f"vernier x{machine.workers}",
        batches=native_batches,
        path=path,
        workers=machine.workers,
        recipe=recipe,
        machine=replace(machine, backend="native"),
    )
    specs = [one]
    if compiled:
        compiled_machine = replace(machine, backend="compiled")
        specs.append(replace(one, name=f"compiled x{machine.workers}", machine=compiled_machine))
    if machine.workers > 1:
        specs.append(replace(one, name="vernier x1", workers=1))
    return specs, [(one.name, spec.name) for spec in specs[1:]]


def measure_loaders(specs: list[LoaderSpec], *, rounds: int, images: int) -> list[LoaderRounds]:
    """Let the loaders take turns, in a new random order each round; a first round of each is thrown away."""
    context = multiprocessing.get_context("spawn")
    shuffle = random.Random(0)
    running = []
    try:
        for spec in specs:
            pipe, far_end = context.Pipe()
            process = context.Process(target=_serve, args=(spec, far_end), daemon=False)
            process.start()
            far_end.close()
            running.append((LoaderRounds(spec, images * spec.round_factor), pipe, process))
        for loader, pipe, _ in running:
            _run_round(loader, pipe)
        for _ in range(rounds):
            for loader, pipe, _ in shuffle.sample(running, len(running)):
                loader.rounds.append(_run_round(loader, pipe))
    finally:
        for _, pipe, process in running:
            pipe.close()
            process.join(timeout=20)
    return [loader for loader, _, _ in running]


def _run_round(loader: LoaderRounds, pipe: Connection) -> Round:
    try:
        pipe.send(loader.images)
        answer = pipe.recv()
    except (EOFError, OSError):
        raise RunFailed(f"The process of the loader {loader.spec.name} ended early; its message is above.") from None
    if isinstance(answer, str):
        raise ConfigError(f"{loader.spec.name}: {answer}")
    assert isinstance(answer, Round)
    return answer


def speed_ratio(faster: LoaderRounds, slower: LoaderRounds, clock: Clock = "passed") -> Ratio:
    """How many times faster one loader is than another, round by round."""
    factor = faster.images / slower.images
    pairs = zip(faster.rounds, slower.rounds, strict=True)
    ratios = [factor * b.duration_s(clock) / a.duration_s(clock) for a, b in pairs]
    estimate = quantile_estimate(ratios, 0.5)
    return Ratio(
        name=faster.spec.name,
        against=slower.spec.name,
        median=estimate.value,
        low=estimate.low,
        high=estimate.high,
        rounds=len(ratios),
        clock=clock,
    )


def summarize_loaders(
    loaders: list[LoaderRounds], pairs: list[tuple[str, str]], clocks: tuple[Clock, ...] = ("passed",)
) -> LoaderReport:
    """The figures of every loader, and the ratio of each pair by each clock."""
    by_name = {loader.spec.name: loader for loader in loaders}
    spec = loaders[0].spec
    return LoaderReport(
        what_ran=describe_loading(spec.recipe, spec.path, spec.workers),
        time=utc_stamp(),
        cores=len(allowed_cores()),
        load_average=os.getloadavg()[0],
        image_px=spec.recipe.data.image_px,
        batch=BATCH,
        contenders=tuple(_row(loader) for loader in loaders),
        ratios=tuple(speed_ratio(by_name[a], by_name[b], clock) for a, b in pairs for clock in clocks),
    )


_CROPS = {
    "random-resized": "RandomResizedCrop of {low:.0f} to {high:.0f} % of the area to {px} px",
    "pad": "padded by {pad} px, cropped to {px} px",
    "none": "resized to {px} px",
    "ssd": "random crop of MLPerf's SSD to {px} px",
    "ssd-tf": "random crop of TensorFlow's SSD to {px} px",
    "ssd-tf-tall": "random crop of TensorFlow's SSD of any height to {px} px",
}


def describe_loading(recipe: Recipe, path: str, workers: int) -> str:
    """What is measured: data, preparation, threads and batch; and that training may do less."""
    augment, px = recipe.augment, recipe.data.image_px
    low, high = (100 * share for share in augment.area)
    steps = [_CROPS[augment.crop].format(low=low, high=high, px=px, pad=augment.pad_px)]
    steps += ["flip"] if augment.flip else []
    steps += [name for name, off in ((augment.policy, "none"), (augment.jitter, "none")) if name != off]
    steps += ["erasing"] if augment.erase else []
    return (
        f"loading {path} · {', '.join(steps)} · {workers} loader thread{'' if workers == 1 else 's'} · batch {BATCH} · "
        "every image is decoded every time; training caches decoded images that fit into memory"
    )


def _row(loader: LoaderRounds) -> LoaderRow:
    rounds = loader.rounds
    return LoaderRow(
        name=loader.spec.name,
        workers=loader.spec.workers,
        images_per_s=round(loader.images / statistics.median(r.seconds for r in rounds), 1),
        cpu_us_per_image=round(statistics.median(r.cpu_s for r in rounds) / loader.images * 1e6, 1),
        blocked=round(statistics.median(r.blocked for r in rounds), 3),
        rss_mib=round(max(r.rss_bytes for r in rounds) / 2**20),
        grew_mib=round(max(r.grew_bytes for r in rounds) / 2**20),
        rounds=len(rounds),
        images_a_round=loader.images,
    )


# ------------------------------------------------------------------------------------------------- inside the processes


def native_reader(spec: LoaderSpec) -> "tuple[CountingReader, TrainOrder]":
    """Vernier's reader of training images, and the order of its samples."""
    from vernier.data.loading.order import TrainOrder
    from vernier.tasks import task_of

    recipe = replace(spec.recipe, data=replace(spec.recipe.data, source=spec.path))
    task = task_of(recipe, spec.machine)
    source = task.open(spec.split)
    order = TrainOrder(
        samples=len(source),
        seed=recipe.seed,
        global_batch=min(BATCH, len(source)),
        repeats=recipe.augment.repeats,
    )
    return task.train_reader(source, source, spec.machine), order


def native_batches(spec: LoaderSpec) -> Iterator[int]:
    """Load batches with Vernier's loader for ever; yields their sizes."""
    from vernier.data.loading.loader import Loader

    reader, order = native_reader(spec)
    steps = (divmod(step, order.steps_per_epoch) for step in itertools.count())
    loader = Loader(reader, batch=order.global_batch, workers=spec.workers, prefetch=PREFETCH)
    for batch in loader.batches((epoch, order.indices(epoch, step, 0)) for epoch, step in steps):
        yield len(batch.images)


def _serve(spec: LoaderSpec, pipe: Connection) -> None:
    """Answer each number of images with a Round over so many, or with a message where the loader cannot start."""
    import psutil

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(1)
    process = psutil.Process()
    initial_bytes = _own_bytes([process])
    batches = spec.batches(spec)
    while True:
        try:
            images = pipe.recv()
        except EOFError:
            return
        try:
            for _ in range((PREFETCH + 2) * (spec.workers + 1)):
                next(batches)  # batches that were prepared before the clock starts do not count
        except (ConfigError, ImportError, RuntimeError) as error:
            pipe.send(str(error))
            return
        family = [process, *process.children(recursive=True)]
        result = _time_round(batches, images, family, initial_bytes)
        _wait_until_idle(family)  # preparing batches ahead must not take the next loader's time
        pipe.send(result)


def _time_round(batches: Iterator[int], images: int, family: list[Any], initial_bytes: int) -> Round:
    start_s, done, start_cpu_s, before = now_s(), 0, _cpu_s(family), _loader_threads()
    while done < images:
        done += next(batches)
    seconds, cpu_s, after = now_s() - start_s, _cpu_s(family) - start_cpu_s, _loader_threads()
    ran_s, queued_s = ([b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True))
    blocked = [1 - ran / (seconds - queued) for ran, queued in zip(ran_s, queued_s, strict=True)]
    return Round(
        seconds=seconds,
        cpu_s=cpu_s,
        rss_bytes=sum(p.memory_info().rss for p in family),
        grew_bytes=_own_bytes(family) - initial_bytes,
        queued_s=statistics.mean(queued_s) if queued_s else 0.0,
        blocked=statistics.mean(blocked) if blocked else 0.0,
    )


def _own_bytes(family: list[Any]) -> int:
    """Memory that no other process shares; mapped files do not count."""
    return sum(p.memory_full_info().uss for p in family)


def _cpu_s(family: list[Any]) -> float:
    """Processor time: in nanoseconds on Linux (without threads that have ended), otherwise in ticks of 10 ms."""
    try:
        texts = [task.read_text() for p in family for task in Path(f"/proc/{p.pid}/task").glob("*/schedstat")]
        return sum(int(text.split()[0]) for text in texts) / 1e9
    except OSError:
        return float(sum(t.user + t.system for t in (p.cpu_times() for p in family)))


def _loader_threads() -> tuple[list[float], list[float]]:
    """Seconds that each loader thread ran, and that it waited for a core; empty where the system does not say."""
    ran_s, queued_s = [], []
    for thread in threading.enumerate():
        if thread.name.startswith("vernier-loader"):
            try:
                fields = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
            except OSError:
                return [], []
            ran_s.append(int(fields[0]) / 1e9)
            queued_s.append(int(fields[1]) / 1e9)
    return ran_s, queued_s


def _wait_until_idle(family: list[Any]) -> None:
    before = -1.0
    while (spent := _cpu_s(family)) > before + _IDLE_S:
        before = spent
        threading.Event().wait(0.05)
