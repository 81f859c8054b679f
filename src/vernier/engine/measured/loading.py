"""How fast images become batches, beside what one would use instead: RandomResizedCrop, flip, uint8 batch.

Every contender lives in a process of its own, so that its memory can be measured, and they take turns in one run, so
that whatever else the machine does meets them all. Ratios are taken round by round; the interval of their median is exact.

Peers: `pillow` is PyTorch's DataLoader over Pillow, as a torchvision user writes it (torchvision itself is not needed);
`dali` is NVIDIA DALI's fused random-crop decoder on the CPU. Both read the image folder.
"""

import itertools
import multiprocessing
import os
import random
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from vernier.clock import now_s, utc_stamp
from vernier.cores import allowed_cores
from vernier.errors import ConfigError, RunFailed
from vernier.measure.statistics.estimates import quantile_estimate

BATCH = 32
IMAGE_PX = 224
PREFETCH = 3
AREA, RATIO = (0.08, 1.0), (0.75, 4 / 3)
_IDLE_S = 0.005  # of processor time in 50 ms: looking takes some too


Clock = Literal["passed", "undisturbed", "processor"]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to make batches. `kind` is native, processes, apart, pillow or dali; `path` what it reads."""

    name: str
    kind: str
    path: str
    split: str = "train"
    workers: int = 1
    image_px: int = IMAGE_PX
    lengthened: int = 1
    """By how much more images a round takes than those of others; for what would be done in no time."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One turn: time on the clock and of processors, memory, and what the loader's threads waited for."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    grew_bytes: int
    """Memory of its own beyond what the process had before it opened the data."""
    queued_s: float = 0.0
    """How long a loader thread, on average, could have run but had no core: what others on the machine cost. 0: not known."""
    blocked: float = 0.0
    """Share of the time for which a loader thread waited for the interpreter's lock or for work, cores aside."""

    @property
    def undisturbed_s(self) -> float:
        return self.seconds - self.queued_s


@dataclass
class Measured:
    """What one contender did, round by round."""

    contender: Contender
    images: int
    rounds: list["Round"] = field(default_factory=list)

    @property
    def images_per_s(self) -> float:
        return self.images / statistics.median(r.seconds for r in self.rounds)

    @property
    def cpu_us_per_image(self) -> float:
        return statistics.median(r.cpu_s for r in self.rounds) / self.images * 1e6

    @property
    def rss_bytes(self) -> int:
        return max(r.rss_bytes for r in self.rounds)

    @property
    def grew_bytes(self) -> int:
        return max(r.grew_bytes for r in self.rounds)


@dataclass(frozen=True)
class Ratio:
    """How many times faster `name` is than `against`: the median over rounds and its 95 % interval, which has no ends
    where the rounds are too few (below 6).

    `clock` is what was compared: time as it passed, without the time that others took cores away, or processor time.
    """

    name: str
    against: str
    median: float
    low: float | None
    high: float | None
    rounds: int
    clock: Clock = "passed"


def compare(
    contenders: list[Contender], *, rounds: int, images: int, progress: Callable[[int, int], None] | None = None
) -> list[Measured]:
    """Let the contenders take turns, in a new random order each round; the first round of each is thrown away."""
    context = multiprocessing.get_context("spawn")
    dice = random.Random(0)
    running = []
    try:
        for contender in contenders:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(contender, theirs), daemon=False)
            process.start()
            theirs.close()
            running.append((Measured(contender, images * contender.lengthened), ours, process))
        for measured, pipe, _ in running:
            _ask(measured.contender, pipe, measured.images)
        for turn in range(rounds):
            for measured, pipe, _ in dice.sample(running, len(running)):
                measured.rounds.append(_ask(measured.contender, pipe, measured.images))
            if progress:
                progress(turn + 1, rounds)
    finally:
        for _, pipe, process in running:
            pipe.close()
            process.join(timeout=20)
    return [measured for measured, _, _ in running]


def _ask(contender: Contender, pipe: Connection, images: int) -> Round:
    try:
        pipe.send(images)
        answer = pipe.recv()
    except (EOFError, OSError):
        raise RunFailed(f"The contender {contender.name} died; its message is above.") from None
    if isinstance(answer, str):
        raise ConfigError(f"{contender.name}: {answer}")
    return Round(**answer)


def ratio(faster: Measured, slower: Measured, clock: Clock = "passed") -> Ratio:
    name = {"passed": "seconds", "undisturbed": "undisturbed_s", "processor": "cpu_s"}[clock]
    more = faster.images / slower.images
    values = [more * getattr(b, name) / getattr(a, name) for a, b in zip(faster.rounds, slower.rounds, strict=True)]
    found = quantile_estimate(values, 0.5)
    names = faster.contender.name, slower.contender.name
    return Ratio(*names, found.value, found.low, found.high, len(values), clock)


def report(
    measured: list[Measured], pairs: list[tuple[str, str]], clocks: tuple[Clock, ...] = ("passed",)
) -> dict[str, Any]:
    """Everything as plain values, with the ratio of each pair by each clock."""
    by_name = {m.contender.name: m for m in measured}
    return {
        "time": utc_stamp(),
        "cores": len(allowed_cores()),
        "load_average": os.getloadavg()[0],
        "image_px": measured[0].contender.image_px,
        "batch": BATCH,
        "contenders": [
            {
                "name": m.contender.name, "workers": m.contender.workers, "images_per_s": round(m.images_per_s, 1),
                "cpu_us_per_image": round(m.cpu_us_per_image, 1), "blocked": round(statistics.median(r.blocked for r in m.rounds), 3),
                "rss_mib": round(m.rss_bytes / 2**20), "grew_mib": round(m.grew_bytes / 2**20),
                "rounds": len(m.rounds), "images_a_round": m.images,
            }
            for m in measured
        ],
        "ratios": [asdict(ratio(by_name[a], by_name[b], clock)) for a, b in pairs for clock in clocks],
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- inside the processes


def _serve(contender: Contender, pipe: Connection) -> None:
    """Answer each number of images with the seconds they took and the memory of this process and its children."""
    import psutil

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(1)
    me = psutil.Process()
    at_first = _own_bytes([me])
    try:
        kinds = {"native": _native, "processes": _processes, "apart": _apart, "pillow": _pillow, "dali": _dali}
        batches = kinds[contender.kind](contender)
    except (ConfigError, ImportError, RuntimeError) as error:
        pipe.recv()
        pipe.send(str(error))
        return
    while True:
        try:
            images = pipe.recv()
        except EOFError:
            return
        for _ in range((PREFETCH + 2) * (contender.workers + 1)):
            next(batches)  # what was prepared before the clock starts does not count
        family = [me, *me.children(recursive=True)]
        start, done, spent, before = now_s(), 0, _cpu_s(family), _loader_threads()
        while done < images:
            done += next(batches)
        seconds, spent, after = now_s() - start, _cpu_s(family) - spent, _loader_threads()
        ran, queued = ([b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True))
        waited = {} if not ran else {
            "queued_s": statistics.mean(queued),
            "blocked": 1 - statistics.mean(r / (seconds - q) for r, q in zip(ran, queued, strict=True)),
        }  # fmt: skip
        memory = {
            "rss_bytes": sum(p.memory_info().rss for p in family), "grew_bytes": _own_bytes(family) - at_first
        }  # fmt: skip
        _wait_until_idle(family)  # what is prepared ahead must not take the next contender's time
        pipe.send({"seconds": seconds, "cpu_s": spent, **memory, **waited})


def _own_bytes(family: list[Any]) -> int:
    """Memory that nobody else has, which files that are mapped do not count as."""
    return sum(p.memory_full_info().uss for p in family)


def _cpu_s(family: list[Any]) -> float:
    """Processor time: to the nanosecond where Linux tells (threads that have ended are left out), else in ticks of 10 ms."""
    try:
        told = [task.read_text() for p in family for task in Path(f"/proc/{p.pid}/task").glob("*/schedstat")]
        return sum(int(text.split()[0]) for text in told) / 1e9
    except OSError:
        return float(sum(t.user + t.system for t in (p.cpu_times() for p in family)))


def _loader_threads() -> tuple[list[float], list[float]]:
    """Seconds for which each thread of the loader ran, and for which it had to wait for a core; nothing where Linux does not tell."""
    ran, queued = [], []
    for thread in threading.enumerate():
        if thread.name.startswith("vernier-loader"):
            try:
                told = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
            except OSError:
                return [], []
            ran.append(int(told[0]) / 1e9)
            queued.append(int(told[1]) / 1e9)
    return ran, queued


def _wait_until_idle(family: list[Any]) -> None:
    before = -1.0
    while (spent := _cpu_s(family)) > before + _IDLE_S:
        before = spent
        threading.Event().wait(0.05)


def _ours(contender: Contender) -> tuple[Any, Any]:
    from vernier.config import Augment, Data
    from vernier.data.loading.order import TrainOrder
    from vernier.data.loading.readers import TrainReader
    from vernier.data.sources import open_split

    source = open_split(contender.path, contender.split)
    reader = TrainReader(source, Data(image_px=contender.image_px), Augment(area=AREA, ratio=RATIO), 0)
    return reader, TrainOrder(samples=len(source), seed=0, global_batch=min(BATCH, len(source)))


def _native(contender: Contender) -> Iterator[int]:
    from vernier.data.loading.loader import Loader

    reader, order = _ours(contender)
    requests = ((step // order.steps_per_epoch, step % order.steps_per_epoch) for step in itertools.count())
    loader = Loader(reader, batch=order.global_batch, workers=contender.workers, prefetch=PREFETCH)
    return (len(b.images) for b in loader.batches((e, order.indices(e, s, 0)) for e, s in requests))


class OursInProcesses:
    """Our own reader the way PyTorch's DataLoader runs things: each worker process makes whole batches, which cross by shared memory."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._made: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, step: int) -> Any:
        import torch

        if self._made is None:
            self._made = _ours(self._contender)
        reader, order = self._made
        epoch, at = divmod(step, order.steps_per_epoch)
        out = torch.empty((order.global_batch, *reader.shape), dtype=torch.uint8)
        reader.fill(epoch, order.indices(epoch, at, 0), out.numpy())
        return out


def _processes(contender: Contender) -> Iterator[int]:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        OursInProcesses(contender), batch_size=None, shuffle=False, num_workers=contender.workers, prefetch_factor=PREFETCH  # type: ignore[arg-type]
    )  # fmt: skip
    return (len(images) for images in loader)


def _apart(contender: Contender) -> Iterator[int]:
    """As many programs as there are workers, each with one worker and batches of its own, which go nowhere: what the
    cores give to those who share nothing."""
    context = multiprocessing.get_context("spawn")
    made: Any = context.Queue(PREFETCH)
    alone = replace(contender, kind="native", workers=1)
    for _ in range(contender.workers):
        context.Process(target=_tell, args=(alone, made), daemon=True).start()
    while True:
        yield made.get()


def _tell(contender: Contender, made: Any) -> None:
    import torch

    torch.set_num_threads(1)
    for images in _native(contender):
        made.put(images)


class PillowFolder:
    """The data set a torchvision user writes: open, convert, RandomResizedCrop, flip, to a uint8 tensor."""

    def __init__(self, paths: list[str], image_px: int) -> None:
        self._paths, self._px = paths, image_px

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        import numpy as np
        import torch
        from PIL import Image

        with open(self._paths[index], "rb") as f:
            image = Image.open(f).convert("RGB")
        left, top, width, height = self._window(*image.size)
        size = (self._px, self._px)
        image = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), 0

    def _window(self, width: int, height: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            area = width * height * random.uniform(*AREA)
            aspect = random.uniform(*RATIO)
            w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, width - w), random.randint(0, height - h), w, h
        return 0, 0, width, height


def _paths(contender: Contender) -> list[str]:
    from vernier.data.sources import FolderSource, open_split

    source = open_split(contender.path, contender.split)
    if not isinstance(source, FolderSource):
        raise ConfigError(f"{contender.path} is no image folder, which is what {contender.kind} reads here.")
    return [source.describe(i) for i in range(len(source))]


def _pillow(contender: Contender) -> Iterator[int]:
    from torch.utils.data import DataLoader

    paths = _paths(contender)
    loader: Any = DataLoader(
        PillowFolder(paths, contender.image_px), batch_size=min(BATCH, len(paths)), shuffle=True, drop_last=True,  # type: ignore[arg-type]
        num_workers=contender.workers, persistent_workers=True, prefetch_factor=PREFETCH,
    )  # fmt: skip

    def forever() -> Iterator[int]:
        while True:
            for images, _ in loader:
                yield len(images)

    return forever()


def _dali(contender: Contender) -> Iterator[int]:
    from vernier.data.loading.dali import train_pipeline

    paths = _paths(contender)
    batch = min(BATCH, len(paths))
    pipeline = train_pipeline(
        paths, batch=batch, threads=contender.workers, image_px=contender.image_px, area=AREA, ratio=RATIO
    )

    def forever() -> Iterator[int]:
        while True:
            (images,) = pipeline.run()
            yield len(images)

    return forever()


# ------------------------------------------------------------------------------------------------------- ready to print


def folder_contenders(
    path: Path, workers: int, peers: tuple[str, ...], image_px: int
) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Vernier on what `path` holds with one worker and with `workers`, beside the peers with as many."""
    named = [Contender(name=f"vernier x{workers}", kind="native", path=str(path), workers=workers, image_px=image_px)]
    named += [
        Contender(name=f"{p} x{workers}", kind=p, path=str(path), workers=workers, image_px=image_px) for p in peers
    ]
    pairs = [(named[0].name, c.name) for c in named[1:]]
    if workers > 1:
        named.append(Contender(name="vernier x1", kind="native", path=str(path), workers=1, image_px=image_px))
        pairs.append((named[0].name, "vernier x1"))
    return named, pairs
