"""Running sums: correct predictions on the device between two reports, and the metrics of an epoch.

`step` adds those of its batches, `loop` reads them with the losses of a window and closes an epoch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from vernier.measure.throughput import Window
from vernier.records.events import EpochEvent, Event, StepEvent


class _Accuracy(NamedTuple):
    """Top-1 and top-5 of training images, in percent."""

    top1: float
    top5: float


class CorrectCounter:
    """Counts correct predictions of training batches on the device; nothing waits for it.

    Off unless `limits.train_accuracy` is set and the task counts them.
    """

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled, self._device = enabled, device
        self._correct: torch.Tensor | None = None

    def add(self, correct: torch.Tensor | None) -> None:
        """Add the correct top-1 and top-5 predictions of a batch, [2]."""
        if correct is not None:
            self._correct = correct if self._correct is None else self._correct + correct

    def pop(self) -> torch.Tensor:
        """The correct predictions since the last report, on the device, [2]; empty where none were counted."""
        correct, self._correct = self._correct, None
        return torch.zeros(0, device=self._device) if correct is None else correct

    @staticmethod
    def accuracy(mean_correct: Sequence[float], images: float) -> _Accuracy | None:
        """The accuracy from the values of `pop`, averaged over processes; None where nothing was counted.

        `images` are those whose predictions a process counts: its own, or with virtual shards all of them.
        """
        if not mean_correct:
            return None
        top1, top5 = (100 * correct / images for correct in mean_correct)
        return _Accuracy(top1, top5)


class EpochTotals:
    """Sums the windows of an epoch; evaluations and checkpoints between them do not count."""

    def __init__(self, history: Sequence[Event] = (), *, after_step: int = 0, until_step: int = 0) -> None:
        """A resumed run takes over what its earlier sessions recorded of the epoch it is in."""
        self._windows = [e for e in history if isinstance(e, StepEvent) and after_step < e.step <= until_step]

    def add(self, window: StepEvent) -> None:
        self._windows.append(window)

    def close(self, step: int, epoch: int) -> EpochEvent:
        """The epoch that ends at `step`; the next one begins."""
        windows, self._windows = self._windows, []
        seconds, samples = sum(sum(w.step_s) for w in windows), sum(w.samples for w in windows)
        steady = Window.total(Window.of_step(w) for w in windows if not w.compilations)
        return EpochEvent(
            step=step,
            epoch=epoch,
            samples=samples,
            seconds=seconds,
            images_per_s_total=steady.samples_per_s or None,
            loss=_mean([(w.loss, len(w.step_s)) for w in windows]),
            top1=_mean([(w.top1, w.samples) for w in windows]),
            top5=_mean([(w.top5, w.samples) for w in windows]),
        )


def _mean(weighted: list[tuple[float | None, int]]) -> float | None:
    """The weighted mean; None unless every window has the figure."""
    values = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total and len(values) == len(weighted) else None
