"""Score of a detector: collects detections by sample and hands them to COCO's evaluator; shows some of them as
examples."""

import contextlib
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import torch

from vernier.data.decoding.decode import BadImage, Image, encode_thumbnail
from vernier.data.loading.targets import BoxTargets, coco_ground_truth
from vernier.data.sources.base import BoxSource
from vernier.records.codec import encode
from vernier.records.predictions import Box, DetectionExample, ScoredClass, TrueBox
from vernier.records.run import EvalResult

from .boxes import Detections
from .coco import Rows, coco_figures

EXAMPLES, EXAMPLE_BOXES, EXAMPLE_PX = 12, 40, 400

Floats = npt.NDArray[np.float64]


class DetectionScore:
    """Detections by sample, so the result does not depend on the order of samples or on who evaluated them."""

    def __init__(self, source: BoxSource) -> None:
        self._source = source
        self._detections: dict[int, Floats] = {}
        self._uncollected: list[tuple[Detections, BoxTargets]] = []

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_source": None}  # the data set is not sent to other processes

    @property
    def samples(self) -> int:
        return len(self._detections)

    def add(self, predicted: Detections, targets: BoxTargets) -> None:
        self._uncollected.append((predicted, targets))

    def collect(self) -> None:
        """Read the detections of every batch so far from the device, in one transfer."""
        if not self._uncollected:
            return
        predicted, targets = zip(*self._uncollected, strict=True)
        self._uncollected = []
        samples, sizes = (torch.cat(parts) for parts in zip(*((t.samples, t.sizes) for t in targets), strict=True))
        detections = in_pixels(Detections.joined(predicted), sizes)
        self._detections.update(zip(samples.tolist(), detections, strict=True))

    def merge(self, others: Iterable["DetectionScore"]) -> None:
        for other in others:
            self._detections.update(other._detections)

    def rows(self) -> Rows:
        """List every detection with the ids of the annotations, by sample and falling score."""
        # NumPy cannot concatenate an empty list, so an evaluation without samples needs a table without rows.
        return np.concatenate([self._rows_of(s) for s in sorted(self._detections)] or [np.zeros((0, 7))])

    def _rows_of(self, sample: int) -> Rows:
        detections = self._detections[sample]
        rows = np.empty((len(detections), 7))
        rows[:, 0] = self._source.image_id(sample)
        rows[:, 1:3], rows[:, 3:5] = detections[:, :2], detections[:, 2:4] - detections[:, :2]
        rows[:, 5] = detections[:, 4]
        # The annotations' own ids have gaps: COCO numbers its 80 categories from 1 to 90.
        rows[:, 6] = np.asarray(self._source.category_ids)[detections[:, 5].astype(np.int64)]
        return rows

    def result(self) -> EvalResult:
        """COCO's twelve figures, the number of detections, and AP and AP50 per class."""
        ids = [self._source.image_id(s) for s in sorted(self._detections)]
        return coco_figures(coco_ground_truth(self._source), self.rows(), ids)

    def documents(self) -> Mapping[str, object]:
        """`detections`, in the format of COCO's results files, and `examples` of evaluated images."""
        return {
            "examples": encode(self._examples()),
            "detections": [
                {"image_id": int(r[0]), "category_id": int(r[6]), "bbox": r[1:5], "score": r[5]}
                for r in self.rows().tolist()
            ],
        }

    def _examples(self) -> list[DetectionExample]:
        """Choose images evenly spaced over the evaluated ones: always the same ones."""
        samples = sorted(self._detections)
        if len(samples) > EXAMPLES:
            samples = [samples[i * len(samples) // EXAMPLES] for i in range(EXAMPLES)]
        examples = []
        for sample in samples:
            # An image that cannot be read any more costs an example, not the result of the evaluation.
            with contextlib.suppress(BadImage, OSError):
                examples.append(self._example(sample, self._source.image(sample)))
        return examples

    def _example(self, sample: int, image: Image) -> DetectionExample:
        scale = np.array([image.shape[1], image.shape[0]] * 2, np.float64)
        truth, detections = self._source.boxes(sample), self._detections[sample]
        best = detections[np.argsort(-detections[:, 4], kind="stable")][:EXAMPLE_BOXES]
        return DetectionExample(
            image=self._source.describe(sample),
            width=image.shape[1],
            height=image.shape[0],
            jpeg=encode_thumbnail(image, EXAMPLE_PX),
            truth=tuple(
                TrueBox(box=_box(box / scale), class_name=self._source.classes[kind])
                for box, kind in zip(truth.ltrb, truth.classes.tolist(), strict=True)
            ),
            objects=tuple(name_rows(np.concatenate([best[:, :4] / scale, best[:, 4:]], axis=1), self._source.classes)),
        )


def in_pixels(predicted: Detections, sizes: torch.Tensor) -> list[Floats]:
    """List per image [detections, 6]: left, top, right, bottom in its own pixels, score, class from 0.

    Boxes with NaN, of a model that diverged, are left out: some evaluators count them as correct.
    """
    parts = (predicted.ltrb, predicted.scores[..., None], predicted.classes[..., None].float())  # exact up to 2^24
    rows = torch.cat(parts, dim=2).cpu().double()
    scale = sizes.flip(1).repeat(1, 2).double()  # width, height, width, height
    # Evaluation resizes to a square; fractions of it, times the original sides, restore the aspect ratio.
    rows[..., :4] = rows[..., :4].clamp(0, 1) * scale[:, None]
    rows[..., 5] -= 1  # without the background; padding becomes -1
    counts = (rows[..., 5] >= 0).sum(1).tolist()
    # Padding is at the end, so a count removes it. Boxes with NaN can be anywhere, and need a mask.
    listed = [of_image[:count] for of_image, count in zip(rows.numpy(), counts, strict=True)]
    return [of_image[np.isfinite(of_image).all(axis=1)] for of_image in listed]


def name_rows(rows: Floats, classes: tuple[str, ...]) -> list[ScoredClass]:
    """Turn rows of left, top, right, bottom, score and class number into predictions with class names."""
    return [ScoredClass(class_name=classes[int(r[5])], score=r[4], box=_box(r[:4])) for r in rows.tolist()]


def _box(corners: Iterable[float]) -> Box:
    left, top, right, bottom = map(float, corners)
    return left, top, right, bottom
