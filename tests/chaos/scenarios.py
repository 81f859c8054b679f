"""What is killed: trainings and preparations of seconds, each with the moments at which a kill may find it.

A moment is recognised by what is on the disk, as anybody could see it from outside; nothing in the program is changed.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tests.conftest import TINY

from .results import Result, finished_runs, training_result, tree_result

Start = Literal["forked", "command", "ranks"]
Victims = Literal["process", "rank", "launcher", "all"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data that the scenarios read; made once."""

    folder: Path

    @property
    def containers(self) -> Path:
        """Tar shards and TFRecords without Vernier's tables."""
        return self.folder / "containers"

    def commands(self) -> list[list[str]]:
        """What makes them."""
        make, pack = "data make shapes --out", f"data prepare folder {self.folder}/photos"
        lines = [
            f"{make} {self.folder}/images --train 96 --val 40 --size-px 32",
            f"{make} {self.folder}/boxes --kind detect --train 32 --val 12 --size-px 96",
            f"{make} {self.folder}/photos --train 1600 --val 400 --size-px 96",
            f"{pack} {self.containers}/tar --format shards --shard-mb 1 --no-restarts",
            f"{pack} {self.containers}/tfrecord --format tfrecord --files 6 2",
        ]
        return [line.split() for line in lines]

    def forget_tables(self) -> None:
        """As containers of other origin come: without tables and lists."""
        for pattern in ("*.table", "*.shards.json"):
            for path in self.containers.rglob(pattern):
                path.unlink()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command, how it is started, and how often of 1,000 kills it is killed."""

    name: str
    kills: int
    words: tuple[str, ...]
    """Arguments; {data} and {out} stand for folders."""
    start: Start = "forked"
    victims: tuple[Victims, ...] = ("process",)
    moments: tuple[str, ...] = ()
    is_training: bool = True
    outcome: Callable[[Path], Result] | None = None
    """What a finished command left, where that is neither a training nor a folder of equal files."""
    fill: Callable[[Data, Path], None] = field(default=lambda _data, _out: None)
    """Puts into the folder what must be there before the first session."""
    finished: Callable[[Path], Result] = field(default=lambda _out: {})
    """Parts that are done and must not be done again, where what is measured is never the same twice."""

    def arguments(self, data: Data, out: Path) -> list[str]:
        return [word.format(data=data.folder, out=out) for word in self.words]

    def environ(self, out: Path) -> Mapping[str, str]:
        return {"VERNIER_HOME": str(out / "home"), "VERNIER_TEST_MIRROR": str(out / "mirror")}

    def result(self, out: Path) -> Result:
        if self.outcome is not None:
            return self.outcome(out)
        return training_result(out) if self.is_training else tree_result(out)

    def is_complete(self, out: Path, reference: Result) -> bool:
        """Whether a killed session had done all its work."""
        return bool(finished_runs(out)) if self.is_training else self.result(out) == reference


# ------------------------------------------------------------------------------------------------------------ moments


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


def _hidden(folder: Path) -> set[tuple[str, int]]:
    """Hidden entries of a folder with their inodes: a new one may have the name of an old one."""
    try:
        return {(e.name, e.inode()) for e in os.scandir(folder) if e.name.startswith(".")}
    except OSError:
        return set()


@dataclass
class View:
    """The folder of a session, seen from outside; made before the session starts."""

    scenario: Scenario
    out: Path
    eval_steps: frozenset[int] = frozenset()
    last_step: int = 0
    _hidden_before: set[tuple[str, int]] = field(init=False)
    _bytes_before: dict[str, int] = field(init=False)
    _files_before: int = field(init=False)

    def __post_init__(self) -> None:
        self._hidden_before = self._temporaries()
        self._bytes_before = {name: self._events_size(name) for name in _names(self.out)}
        self._files_before = self.file_count()

    def _folders(self) -> list[Path]:
        if not self.scenario.is_training:
            return [self.out, *(Path(folder) for folder, _, _ in os.walk(self.out))][:200]
        runs = [self.out / name for name in sorted(_names(self.out))[-3:]]
        return [folder for run in runs for folder in (run, run / "checkpoints", run / "predictions")]

    def _temporaries(self) -> set[tuple[str, int]]:
        return set().union(*(_hidden(folder) for folder in self._folders()))

    def temporaries(self) -> set[str]:
        """What this session is writing: names of hidden files and folders."""
        return {name for name, _ in self._temporaries() - self._hidden_before}

    def file_count(self) -> int:
        return 0 if self.scenario.is_training else sum(len(files) for _, _, files in os.walk(self.out))

    def grew(self) -> bool:
        return self.file_count() > self._files_before

    def _events_size(self, run: str) -> int:
        try:
            return (self.out / run / "events.jsonl").stat().st_size
        except OSError:
            return 0

    def events(self) -> list[tuple[str, int]]:
        """Kind and step of what this session has logged."""
        runs = [name for name in sorted(_names(self.out)) if self._events_size(name) > self._bytes_before.get(name, 0)]
        if not runs:
            return []
        with (self.out / runs[-1] / "events.jsonl").open("rb") as f:
            f.seek(self._bytes_before.get(runs[-1], 0))
            lines = f.read().split(b"\n")[:-1]
        trees = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [(tree["kind"], tree.get("step", 0)) for tree in trees]

    def is_evaluating(self) -> bool:
        events = [event for event in self.events() if event[0] in ("step", "epoch", "eval")]
        return bool(events) and events[-1][0] != "eval" and events[-1][1] in self.eval_steps


Reached = Callable[[View], bool]


def _saving(view: View) -> bool:
    return any(".writing-" in name for name in view.temporaries())


def _pointer(view: View) -> bool:
    return any(name.startswith((".latest.", ".best.")) for name in view.temporaries())


def _steps(count: int) -> Reached:
    return lambda view: sum(kind == "step" for kind, _ in view.events()) >= count


def _has_file(start: str) -> Reached:
    """Once a file of a run, finished or not, has such a name."""
    return lambda view: any(
        name.lstrip(".").startswith(start) for run in _names(view.out) for name in _names(view.out / run)
    )


MOMENTS: dict[str, Callable[[random.Random], tuple[Reached, float]]] = {
    # each: when it begins, and the longest time after that at which the kill comes
    "starting": lambda dice: (lambda view: True, 0.3),
    "training": lambda dice: (_steps(dice.randrange(1, 8)), 0.03),
    "saving": lambda dice: (_saving, 0.01),
    "pointer": lambda dice: (_pointer, 0.001),
    "evaluating": lambda dice: (View.is_evaluating, 0.03),
    "resumed": lambda dice: (lambda view: bool(view.events()), 0.05),
    "ending": lambda dice: (lambda view: ("step", view.last_step) in view.events(), 0.1),
    "any time": lambda dice: (lambda view: True, 0.0),  # up to as long as the undisturbed session took
    "writing": lambda dice: (lambda view: bool(view.temporaries()), 0.02),
    "exporting": lambda dice: (_has_file("model.safetensors"), 0.1),
    "page": lambda dice: (_has_file("model_card.md"), 0.3),
    "next file": lambda dice: (View.grew, 0.02),
}
TRAINING_MOMENTS = ("starting", "training", "saving", "saving", "pointer", "evaluating", "resumed", "ending")
PREPARING_MOMENTS = ("starting", "writing", "next file")


# ---------------------------------------------------------------------------------------------------------- scenarios


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


def settings(**values: str) -> tuple[str, ...]:
    """Arguments of `vernier train`: optim__lr="0.1" is --set optim.lr=0.1."""
    pairs = (("--set", f"{name.replace('__', '.')}={value}") for name, value in values.items())
    return tuple(word for pair in pairs for word in pair)


OFTEN = settings(checkpoint__every_steps="2", limits__log_every_steps="1", eval__every_epochs="0.5")
CLASSIFIER = ("train", "--data", "{data}/images", "--out", "{out}", *TINY, *OFTEN, "--no-tensorboard")
MIXED = settings(
    augment__mixup="0.2",
    augment__cutmix="0.5",
    ema__decay="0.99",
    machine__accumulation="2",
    loss__label_smoothing="0.1",
)
SCALED = settings(machine__loss_scale="67108864", machine__loss_scale_growth_steps="3")
GROWING = settings(augment__start_px="16", augment__ramp_epochs="[0, 2.5]")
SMALL_DETECTOR = settings(
    data__image_px="96",
    data__eval_px="96",
    data__eval_short_side_px="96",
    model__width="16",
    machine__eval_batch="8",
    machine__workers="1",
    machine__threads="1",
    ema__decay="0.9",
    machine__accumulation="2",
)
DETECTOR = ("train", "ssd-shapes-quick", "--data", "{data}/boxes", "--out", "{out}", "--global-batch", "8")


def _copy_containers(data: Data, out: Path) -> None:
    shutil.copytree(data.containers, out / "containers")


_TRAINING = Scenario(name="", kills=0, words=(), moments=TRAINING_MOMENTS)
_PREPARING = Scenario(name="", kills=0, words=(), moments=PREPARING_MOMENTS, is_training=False)
_RANKS_LEAVE = settings(machine__rank_timeout_s="10")

SCENARIOS = [
    replace(_TRAINING, name="classifier, fp32", kills=225, words=(*CLASSIFIER, "--epochs", "3")),
    replace(
        _TRAINING,
        name="accumulation, MixUp, CutMix, EMA",
        kills=170,
        words=(*CLASSIFIER, *MIXED, "--epochs", "3"),
    ),
    replace(
        _TRAINING,
        name="fp16, dynamic loss scale",
        kills=100,
        words=(*CLASSIFIER, *SCALED, "--precision", "fp16", "--allow-slow", "--epochs", "2"),
    ),
    replace(_TRAINING, name="growing images", kills=110, words=(*CLASSIFIER, *GROWING, "--epochs", "3")),
    replace(
        _TRAINING,
        name="detector",
        kills=120,
        words=(*DETECTOR, *SMALL_DETECTOR, *OFTEN, "--epochs", "3", "--no-tensorboard"),
    ),
    replace(
        _TRAINING,
        name="as installed, with TensorBoard",
        kills=35,
        words=(*CLASSIFIER[:-1], *MIXED, "--epochs", "3"),
        start="command",
    ),
    replace(
        _TRAINING,
        name="2 processes, --procs 2",
        kills=30,
        words=(*CLASSIFIER, *MIXED, *_RANKS_LEAVE, "--procs", "2", "--epochs", "3"),
        start="command",
        victims=("rank", "launcher", "all"),
    ),
    replace(
        _TRAINING,
        name="2 processes of another launcher",
        kills=60,
        words=(*CLASSIFIER, *GROWING, *_RANKS_LEAVE, "--epochs", "3"),
        start="ranks",
        victims=("rank", "all"),
    ),
    replace(
        _PREPARING,
        name="data prepare, shards",
        kills=60,
        words=_words("data prepare folder {data}/photos {out}/shards --format shards --shard-mb 1 --no-restarts"),
    ),
    replace(
        _PREPARING,
        name="built-in data",
        kills=50,
        words=_words("data make shapes --train 600 --val 60 --size-px 64"),
    ),
    replace(
        _PREPARING,
        name="tables of tar shards",
        kills=20,
        words=("data", "inspect", "{out}/containers/tar"),
        fill=_copy_containers,
    ),
    replace(
        _PREPARING,
        name="tables of TFRecords",
        kills=20,
        words=("data", "inspect", "{out}/containers/tfrecord"),
        fill=_copy_containers,
    ),
]
