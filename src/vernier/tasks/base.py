"""The contract between the engine and a task. The engine knows labels, predictions and metrics only through it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from torch import Tensor

from vernier.config import Machine
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.loader import Reader
from vernier.data.sources import Source
from vernier.records.predictions import ScoredClass
from vernier.records.run import EvalResult

Forward = Callable[[Tensor], Any]
"""The network as it is executed: in its precision and mode, with the raw or the averaged weights."""


class CountingReader(Reader, Protocol):
    """A reader that records the images it could not read."""

    bad: BadImages


class TrainingReader(CountingReader, Protocol):
    """A reader of training images. One with another decoder plugs in through the entry points `vernier.loaders`."""

    resize: str
    """The kernel that resizes images, as runs record it."""


@dataclass(frozen=True)
class MicroStep:
    """Which micro-step of which process a loss is computed in. Random choices depend on it and on the seed only."""

    step: int
    micro: int
    rank: int


@dataclass(frozen=True)
class BatchLoss:
    """The mean loss of a batch in fp32 and, where they are counted, its correct top-1 and top-5 predictions, [2]."""

    loss: Tensor
    correct: Tensor | None = None


class Score(Protocol):
    """Accumulates the predictions of an evaluation, in any order: add every batch, collect once, then merge."""

    @property
    def samples(self) -> int: ...

    def add(self, predicted: Any, targets: Any) -> None:
        """Take the predictions of a batch, on whatever device they are, and its targets, on the host."""

    def collect(self) -> None:
        """Bring what was added from the device to the host, in one transfer."""

    def merge(self, others: Iterable[Self]) -> None:
        """Add the scores of other processes. The result does not depend on which process evaluated which sample."""

    def result(self) -> EvalResult:
        """Compute the figures, the task's metric among them."""

    def documents(self) -> Mapping[str, object]:
        """What was predicted, for people and other tools: JSON documents by file name."""


class Task(Protocol):
    """Classification or detection: its data, the outputs of its network, its loss, prediction and metric."""

    name: str
    metric: str
    """The figure that decides which weights are best; higher is better."""

    def open(self, split: str, *, whole: bool = False) -> Source:
        """Open a split of the recipe's data, in as many channels as the recipe's network takes.

        `whole`: data without splits is opened whole, instead of the part that belongs to the split.
        """

    def describe_preparation(self) -> str:
        """Say how an evaluation image is prepared for the network."""

    def outputs(self, classes: int) -> int:
        """How many outputs the network needs for the data's classes."""

    def train_reader(self, source: Source, cached: Source, machine: Machine) -> TrainingReader:
        """Create the reader of training batches; `cached` is the source with decoded images in memory, if they fit."""

    def eval_reader(self, source: Source) -> CountingReader:
        """Create the reader of evaluation batches."""

    def loss(
        self, forward: Forward, images: Tensor, targets: Any, at: MicroStep, *, count_correct: bool = False
    ) -> BatchLoss:
        """Compute the mean loss of the batch; `count_correct`: and how many images were classified right."""

    def predict(self, forward: Forward, images: Tensor) -> Any:
        """Predict a batch, in the form that a score accumulates."""

    def name_predictions(self, predicted: Any, targets: Any, classes: tuple[str, ...]) -> list[list[ScoredClass]]:
        """Give the predictions per image with class names, best first; boxes in pixels of the original image."""

    def score(self, source: Source) -> Score:
        """Create an empty score for an evaluation set."""

    def target(self) -> float | None:
        """The metric at which training may stop."""

    def category_ids(self, source: Source) -> tuple[int, ...] | None:
        """The annotations' own ids of the classes, which a checkpoint records; None where classes have no ids."""
