"""How fast images become batches, beside what one would use instead: RandomResizedCrop, flip, uint8 batch.

Every contender lives in a process of its own, so that its memory can be measured, and they take turns in one run, so
that whatever else the machine does meets them all. Ratios are taken round by round; their interval is a bootstrap's.

Peers: `pillow` is PyTorch's DataLoader over Pillow, as a torchvision user writes it (torchvision itself is not needed);
`dali` is NVIDIA DALI's fused random-crop decoder on the CPU. Both read the image folder.
"""

import multiprocessing
import os
import random
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError, RunFailed
from vernier.measure.clock import now_s, utc_stamp

BATCH = 32
IMAGE_PX = 224
PREFETCH = 3
AREA, RATIO = (0.08, 1.0), (0.75, 4 / 3)
_DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to make batches. `kind` is native, pillow or dali; `path` what it reads."""

    name: str
    kind: str
    path: str
    split: str = "train"
    workers: int = 1
    image_px: int = IMAGE_PX


@dataclass
class Measured:
    """What one contender did: seconds and memory by round."""

    contender: Contender
    images: int
    seconds: list[float] = field(default_factory=list)
    rss_bytes: int = 0

    @property
    def images_per_s(self) -> float:
        return self.images / statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """How many times faster `name` is than `against`: the median over rounds and its 95 % interval."""

    name: str
    against: str
    median: float
    low: float
    high: float
    rounds: int


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
            running.append((Measured(contender, images), ours, process))
        for measured, pipe, _ in running:
            _ask(measured.contender, pipe, images)
        for turn in range(rounds):
            for measured, pipe, _ in dice.sample(running, len(running)):
                seconds, rss = _ask(measured.contender, pipe, images)
                measured.seconds.append(seconds)
                measured.rss_bytes = max(measured.rss_bytes, rss)
            if progress:
                progress(turn + 1, rounds)
    finally:
        for _, pipe, process in running:
            pipe.close()
            process.join(timeout=20)
    return [measured for measured, _, _ in running]


def _ask(contender: Contender, pipe: Connection, images: int) -> tuple[float, int]:
    try:
        pipe.send(images)
        answer = pipe.recv()
    except (EOFError, OSError):
        raise RunFailed(f"The contender {contender.name} died; its message is above.") from None
    if isinstance(answer, str):
        raise ConfigError(f"{contender.name}: {answer}")
    seconds, rss = answer
    return float(seconds), int(rss)


def ratio(faster: Measured, slower: Measured) -> Ratio:
    values = [b / a for a, b in zip(faster.seconds, slower.seconds, strict=True)]
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(_DRAWS))
    low, high = medians[int(0.025 * _DRAWS)], medians[int(0.975 * _DRAWS)]
    return Ratio(faster.contender.name, slower.contender.name, statistics.median(values), low, high, len(values))


def report(measured: list[Measured], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Everything as plain values."""
    by_name = {m.contender.name: m for m in measured}
    return {
        "time": utc_stamp(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "image_px": measured[0].contender.image_px,
        "batch": BATCH,
        "contenders": [
            {
                "name": m.contender.name, "workers": m.contender.workers, "images_per_s": round(m.images_per_s, 1),
                "rss_mib": round(m.rss_bytes / 2**20), "rounds": len(m.seconds), "images_a_round": m.images,
            }
            for m in measured
        ],
        "ratios": [asdict(ratio(by_name[a], by_name[b])) for a, b in pairs],
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- inside the processes


def _serve(contender: Contender, pipe: Connection) -> None:
    """Answer each number of images with the seconds they took and the memory of this process and its children."""
    import psutil

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(1)
    try:
        batches = {"native": _native, "pillow": _pillow, "dali": _dali}[contender.kind](contender)
    except (ConfigError, ImportError, RuntimeError) as error:
        pipe.recv()
        pipe.send(str(error))
        return
    me = psutil.Process()
    while True:
        try:
            images = pipe.recv()
        except EOFError:
            return
        for _ in range((PREFETCH + 1) * contender.workers + 1):
            next(batches)  # what was prepared before the clock starts does not count
        start, done = now_s(), 0
        while done < images:
            done += next(batches)
        seconds = now_s() - start
        family = [me, *me.children(recursive=True)]
        _wait_until_idle(family)  # what is prepared ahead must not take the next contender's time
        pipe.send((seconds, sum(p.memory_info().rss for p in family)))


def _wait_until_idle(family: list[Any]) -> None:
    before = -1.0
    while (spent := sum(t.user + t.system for t in (p.cpu_times() for p in family))) > before:
        before = spent
        threading.Event().wait(0.05)


def _native(contender: Contender) -> Iterator[int]:
    from vernier.config import Augment, Data
    from vernier.data.loader import Loader, TrainReader
    from vernier.data.order import TrainOrder
    from vernier.data.sources import open_split

    source = open_split(contender.path, contender.split)
    batch = min(BATCH, len(source))
    reader = TrainReader(source, Data(image_px=contender.image_px), Augment(area=AREA, ratio=RATIO), 0)
    order = TrainOrder(samples=len(source), seed=0, global_batch=batch)

    def requests() -> Iterator[Any]:
        epoch = 0
        while True:
            for step in range(order.steps_per_epoch):
                yield epoch, order.indices(epoch, step, 0)
            epoch += 1

    loader = Loader(reader, batch=batch, workers=contender.workers, prefetch=PREFETCH)
    return (len(b.images) for b in loader.batches(requests()))


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
    from vernier.data.dali import train_pipeline

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
