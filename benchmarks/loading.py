"""Loaders that take turns at making training batches (decode, augment, uint8), for loader.py and box_loader.py.

Every loader runs in its own process, so that its memory can be measured, and is stopped between its turns. They are
interleaved, so that other programs on the machine disturb them alike; ratios are taken round by round, and the interval
of their median is exact. The loaders of others are in peers.py.
"""

import itertools
import multiprocessing
import os
import random
import signal
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

import psutil

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, override
from vernier.cores import allowed_cores
from vernier.errors import RunFailed
from vernier.frozen import frozen
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.signals import end_with_parent

if TYPE_CHECKING:
    from vernier.data.loading.order import TrainOrder
    from vernier.tasks.base import CountingReader

BATCH = 32
PREFETCH = 3
NATIVE = "loading:native_batches"

Clock = Literal["passed", "processor"]
"""Wall time, and processor time."""


@frozen
class LoaderSpec:
    """One loader to measure."""

    name: str
    config: Config
    """How images are prepared. Its `data.source` is read, by `machine.workers` threads."""
    loader: str = NATIVE
    """A function that takes the configuration, loads batches for ever and yields their sizes: `module:function`."""
    round_factor: int = 1
    """How many times more images per round than other loaders; for one whose round would be too short to measure."""


@frozen
class LoaderRound:
    """So many images in so many seconds, with processor time, and memory beyond that of an idle process."""

    images: int
    seconds: float
    cpu_s: float
    memory_bytes: int = 0


@dataclass
class LoaderRounds:
    """The rounds of one loader, each over `images` images or a few more."""

    spec: LoaderSpec
    images: int
    rounds: list[LoaderRound] = field(default_factory=list)


@frozen
class LoaderRow:
    """The figures of one loader: medians over rounds. `grew_mib` is the most memory beyond that of an idle process."""

    name: str
    workers: int
    images_per_s: float
    cpu_us_per_image: float
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
    """The result, as `--json` prints it."""

    time: str
    cores: int
    load_average: float
    image_px: int
    batch: int
    contenders: tuple[LoaderRow, ...]
    ratios: tuple[Ratio, ...]


def measure_loaders(specs: list[LoaderSpec], *, rounds: int, images: int) -> list[LoaderRounds]:
    """Measure each loader once per round, in a new random order each time; a first round of each is thrown away.

    Raises RunFailed for a loader that fails.
    """
    # A fixed seed: the same benchmark has the same order again.
    shuffle = random.Random(0)
    loaders = [LoaderRounds(spec, images * spec.round_factor) for spec in specs]
    with ExitStack() as stack:
        # All start at once: starting takes seconds of one core each, mostly for importing PyTorch.
        processes = [LoaderProcess(one) for one in loaders]
        for process in processes:
            stack.callback(process.end)
        for process in processes:
            process.wait_until_ready()
        # Round -1 fills the page cache and the buffers; it is not kept.
        for number in range(-1, rounds):
            for process in shuffle.sample(processes, len(processes)):
                measured = process.measure()
                if number >= 0:
                    process.loader.rounds.append(measured)
    return loaders


def speed_ratio(faster: LoaderRounds, slower: LoaderRounds, clock: Clock = "passed") -> Ratio:
    """How many times faster one loader is than another, round by round."""
    # Within a round, so that a disturbance of the machine cancels.
    pairs = zip(*([_seconds_per_image(m, clock) for m in side.rounds] for side in (faster, slower)), strict=True)
    ratios = [b / a for a, b in pairs]
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


def _seconds_per_image(measured: LoaderRound, clock: Clock) -> float:
    return (measured.cpu_s if clock == "processor" else measured.seconds) / measured.images


def summarize_loaders(
    loaders: list[LoaderRounds], pairs: list[tuple[str, str]], clocks: tuple[Clock, ...] = ("passed",)
) -> LoaderReport:
    """The figures of every loader, and the ratio of each pair by each clock."""
    by_name = {loader.spec.name: loader for loader in loaders}
    return LoaderReport(
        time=utc_stamp(),
        cores=len(allowed_cores()),
        load_average=os.getloadavg()[0],
        image_px=loaders[0].spec.config.recipe.data.image_px,
        batch=BATCH,
        contenders=tuple(_row(loader) for loader in loaders),
        ratios=tuple(speed_ratio(by_name[a], by_name[b], clock) for a, b in pairs for clock in clocks),
    )


def _row(loader: LoaderRounds) -> LoaderRow:
    rounds = loader.rounds
    return LoaderRow(
        name=loader.spec.name,
        workers=_workers(loader.spec.config),
        images_per_s=round(statistics.median(r.images / r.seconds for r in rounds), 1),
        cpu_us_per_image=round(statistics.median(r.cpu_s / r.images for r in rounds) * 1e6, 1),
        grew_mib=round(max(r.memory_bytes for r in rounds) / 2**20),
        rounds=len(rounds),
        images_a_round=loader.images,
    )


class LoaderProcess:
    """The process of a loader. It is stopped between its turns, its workers included: it does not load ahead then."""

    def __init__(self, loader: LoaderRounds) -> None:
        context = multiprocessing.get_context("spawn")
        self.loader = loader
        self._connection, connection = context.Pipe()
        # No daemon: loaders start processes of their own.
        self._process = context.Process(target=_take_turns, args=(loader.spec, loader.images, connection))
        self._process.start()
        connection.close()  # or the end of the process would not be seen here

    def wait_until_ready(self) -> None:
        """Wait for the first batch. Raises RunFailed."""
        self._receive()

    def measure(self) -> LoaderRound:
        """One turn. Raises RunFailed."""
        # Asked before it is continued, so that it measures as soon as it wakes.
        self._connection.send(None)
        self._signal(signal.SIGCONT)
        measured: LoaderRound = self._receive()
        return measured

    def end(self) -> None:
        """End it and what it started."""
        self._signal(signal.SIGKILL)
        self._process.join()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            answer = "its process ended"
        if isinstance(answer, str):
            raise RunFailed(f"The loader {self.loader.spec.name} failed: {answer}")
        self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, number: int) -> None:
        assert self._process.pid is not None
        with suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            for process in (own, *own.children(recursive=True)):
                with suppress(psutil.Error):
                    process.send_signal(number)


# ------------------------------------------------------------------------------------------------- inside the processes


def native_reader(config: Config) -> "tuple[CountingReader, TrainOrder]":
    """Vernier's reader of training images, and the order of its samples."""
    from vernier.data.loading.order import TrainOrder
    from vernier.tasks import task_of

    recipe = config.recipe
    task = task_of(recipe, config.machine)
    source = task.open("train")
    order = TrainOrder(
        samples=len(source),
        seed=recipe.seed,
        global_batch=min(BATCH, len(source)),
        repeats=recipe.augment.repeats,
    )
    return task.train_reader(source, source, config.machine), order


def native_batches(config: Config) -> Iterator[int]:
    """Load batches with Vernier's loader for ever; yields their sizes."""
    from vernier.data.loading.loader import Loader

    reader, order = native_reader(config)
    # For ever: epochs follow each other without a pause, as in training.
    steps = (divmod(step, order.steps_per_epoch) for step in itertools.count())
    loader = Loader(reader, batch=order.global_batch, workers=_workers(config), prefetch=PREFETCH)
    for batch in loader.batches((epoch, order.indices(epoch, step, 0)) for epoch, step in steps):
        yield len(batch.images)


def _take_turns(spec: LoaderSpec, images: int, connection: Connection) -> None:
    """Get ready, and measure whenever it is asked to; what goes wrong is sent as text."""
    end_with_parent()
    try:
        measure = opened_loader(spec, images)
        connection.send(None)
        while True:
            connection.recv()
            connection.send(measure())
    except EOFError:  # nobody asks any more
        return
    except Exception as error:
        connection.send(str(error))


def _workers(config: Config) -> int:
    """Loader threads or processes: two if the settings omit them, as in training on a CPU."""
    return 2 if config.machine.workers is None else config.machine.workers


def opened_loader(spec: LoaderSpec, images: int) -> Callable[[], LoaderRound]:
    """What measures an opened loader over so many images."""
    import torch

    # Threads of PyTorch would compete with those of the loader, which do the work here.
    torch.set_num_threads(1)
    config, process = override(spec.config, "machine.device", "cpu"), psutil.Process()
    # With everything imported and nothing opened: the rest is what the loader takes.
    idle_bytes = _own_bytes([process])
    batches: Iterator[int] = resolve_name(spec.loader)(config)
    # As many as the loader can have ready, so that each batch is made while it is measured.
    ahead = (PREFETCH + 2) * (_workers(config) + 1)
    next(batches)

    def measure() -> LoaderRound:
        for _ in range(ahead):
            next(batches)  # batches that were prepared before the clock starts do not count
        # Found again for every measurement: loaders may replace their workers.
        family = [process, *process.children(recursive=True)]
        start_s, start_cpu_s, done = now_s(), _cpu_s(family), 0
        while done < images:
            done += next(batches)
        seconds, cpu_s = now_s() - start_s, _cpu_s(family) - start_cpu_s
        return LoaderRound(
            images=done, seconds=seconds, cpu_s=cpu_s, memory_bytes=max(0, _own_bytes(family) - idle_bytes)
        )

    return measure


def _own_bytes(family: list[Any]) -> int:
    """Memory that no other process shares; mapped files do not count."""
    return sum(p.memory_full_info().uss for p in family)


def _cpu_s(family: list[Any]) -> float:
    """Processor time: in nanoseconds on Linux (without threads that have ended), otherwise in ticks of 10 ms."""
    try:
        # Nanoseconds of the scheduler; ticks of 10 ms would be too coarse for one round.
        texts = [task.read_text() for p in family for task in Path(f"/proc/{p.pid}/task").glob("*/schedstat")]
        return sum(int(text.split()[0]) for text in texts) / 1e9
    except OSError:
        return float(sum(t.user + t.system for t in (p.cpu_times() for p in family)))
