"""What the engine asks of a task, so that it need not know what a label is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch

from vernier.config import Machine
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.loader import Reader
from vernier.data.sources import Source
from vernier.records.predictions import ScoredClass

Forward = Callable[[torch.Tensor], Any]
"""The network as it is executed: in its precision and mode, with the weights that are asked for."""


class CountingReader(Reader, Protocol):
    """A reader that keeps account of the images it could not read."""

    bad: BadImages


@dataclass(frozen=True)
class Moment:
    """When a loss is computed: all that chance in it may depend on, beside the seed."""

    step: int
    micro: int
    rank: int


class Score(Protocol):
    """What has been found out about evaluated samples, in any order."""

    @property
    def samples(self) -> int: ...

    def add(self, predicted: Any, targets: Any) -> None: ...

    def merge(self, others: Iterable[Self]) -> None:
        """Add what other processes found; the result is the same to the last digit whoever evaluated what."""
        ...

    def result(self) -> dict[str, Any]:
        """Figures by name, the task's metric among them, and `samples`."""
        ...

    def documents(self) -> dict[str, Any]:
        """What was predicted, in the forms other tools read: JSON documents by name."""
        ...


class Task(Protocol):
    """Classification or detection: which data it reads, what its network puts out, loss, prediction and metric."""

    name: str
    metric: str
    """The figure that decides which weights are best; more is better."""

    def open(self, split: str) -> Source:
        """A split of the recipe's data."""
        ...

    def outputs(self, classes: int) -> int:
        """How many outputs the network needs for the data's classes."""
        ...

    def train_reader(self, source: Source, kept: Source, machine: Machine) -> CountingReader:
        """What fills training batches; `kept` is the source with decoded images in memory where they fit."""
        ...

    def eval_reader(self, source: Source) -> CountingReader: ...

    def loss(self, forward: Forward, images: torch.Tensor, targets: Any, when: Moment) -> torch.Tensor:
        """The mean over the batch, in fp32."""
        ...

    def predict(self, forward: Forward, images: torch.Tensor) -> Any:
        """What a score counts."""
        ...

    def readable(self, predicted: Any, targets: Any, classes: tuple[str, ...]) -> list[list[ScoredClass]]:
        """The predictions for each image, best first; boxes in pixels of the original image."""
        ...

    def score(self, source: Source) -> Score:
        """A new one, for a validation set."""
        ...

    def target(self) -> float | None:
        """The metric at which training may stop."""
        ...

    def facts(self, source: Source) -> dict[str, Any]:
        """What a checkpoint has to say about the data, so that the network can be used without it."""
        ...
