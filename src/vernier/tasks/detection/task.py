"""Object detection with SSD's default boxes: joins the readers, the loss and the prediction, and scores detections.

The score collects detections by sample, hands them to COCO's evaluator (`coco`), and shows some of them as examples.
"""

import contextlib
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from vernier.config import Machine, Recipe
from vernier.config.checks import check_loader
from vernier.data.augment.normalize import describe_normalisation
from vernier.data.decoding.decode import BadImage, Image, encode_thumbnail
from vernier.data.loading.readers import BoxEvalReader, BoxTrainReader
from vernier.data.loading.targets import BoxTargets
from vernier.data.sources import Source, open_boxes
from vernier.data.sources.base import BoxSource
from vernier.data.sources.views import with_channels
from vernier.devices import kinds
from vernier.models.ssd import anchors_of
from vernier.records.codec import encode
from vernier.records.predictions import Box, DetectionExample, ScoredClass, TrueBox
from vernier.records.run import EvalResult
from vernier.tasks.base import BatchLoss, CountingReader, Forward, MicroStep, TrainingReader

from .boxes import Detections, detect, detection_loss
from .coco import Annotations, Floats, Rows, coco_figures, find_evaluator


class Detect:
    """Any number of objects per image, each with a box and a class."""

    name, metric = "detect", "AP"

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._anchors = anchors_of(recipe.model, recipe.data.image_px)
        self._anchors_on_device = self._anchors

    def open(self, split: str, *, whole: bool = False) -> BoxSource:
        data = self._recipe.data
        source = open_boxes(
            data.source,
            split,
            val_share=data.val_share,
            whole=whole,
            hold_out=data.hold_out,
            exif=data.exif == "apply",
        )
        return _with_boxes(with_channels(source, len(data.mean)))

    def describe_preparation(self) -> str:
        data = self._recipe.data
        size = f"{data.eval_px} x {data.eval_px}"
        return f"whole image resized to {size}, {data.interpolation}, {describe_normalisation(data)}"

    def outputs(self, classes: int) -> int:
        """One output per class, and output 0 for the background."""
        return classes + 1

    def train_reader(self, source: Source, cached: Source, machine: Machine) -> TrainingReader:
        check_loader(machine, self._recipe, detector=True)
        if self._recipe.eval.every_epochs > 0:
            find_evaluator()  # before the first epoch, not after it
        images, recipe = _with_boxes(cached if machine.backend in ("auto", "native") else source), self._recipe
        return BoxTrainReader(images, recipe.data, recipe.augment, recipe.seed, machine.backend)

    def eval_reader(self, source: Source) -> CountingReader:
        return BoxEvalReader(_with_boxes(source), self._recipe.data)

    def loss(
        self, forward: Forward, images: Tensor, targets: BoxTargets, at: MicroStep, *, count_correct: bool = False
    ) -> BatchLoss:
        offsets, logits = forward(images)
        anchors = self._anchors_on(images.device)
        return BatchLoss(detection_loss(offsets, logits, targets, anchors, self._recipe.detect))

    def predict(self, forward: Forward, images: Tensor) -> Detections:
        offsets, logits = forward(images)
        on_host = kinds()[images.device.type].detections_on_host
        anchors = self._anchors if on_host else self._anchors_on(images.device)
        return detect(offsets, logits, anchors, self._recipe.detect)

    def _anchors_on(self, device: torch.device) -> Tensor:
        if self._anchors_on_device.device != device:
            self._anchors_on_device = self._anchors.to(device, non_blocking=True)
        return self._anchors_on_device

    def name_predictions(
        self, predicted: Detections, targets: BoxTargets, classes: tuple[str, ...]
    ) -> list[list[ScoredClass]]:
        return [_name_rows(rows, classes) for rows in _in_pixels(predicted, targets.sizes)]

    def score(self, source: Source) -> "_DetectionScore":
        find_evaluator()  # before the images are evaluated
        return _DetectionScore(_with_boxes(source))

    def target(self) -> float | None:
        return self._recipe.eval.target_ap

    def category_ids(self, source: Source) -> tuple[int, ...]:
        return tuple(_with_boxes(source).category_ids)


def _with_boxes(source: Source) -> BoxSource:
    assert isinstance(source, BoxSource), "a detector opens its own data, so it has boxes"
    return source


EXAMPLES, EXAMPLE_BOXES, EXAMPLE_PX = 12, 40, 400


class _DetectionScore:
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
        detections = _in_pixels(Detections.joined(predicted), sizes)
        self._detections.update(zip(samples.tolist(), detections, strict=True))

    def merge(self, others: Iterable["_DetectionScore"]) -> None:
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
        return coco_figures(_ground_truth(self._source), self.rows(), ids)

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
            objects=tuple(_name_rows(np.concatenate([best[:, :4] / scale, best[:, 4:]], axis=1), self._source.classes)),
        )


def _in_pixels(predicted: Detections, sizes: Tensor) -> list[Floats]:
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


def _name_rows(rows: Floats, classes: tuple[str, ...]) -> list[ScoredClass]:
    """Turn rows of left, top, right, bottom, score and class number into predictions with class names."""
    return [ScoredClass(class_name=classes[int(r[5])], score=r[4], box=_box(r[:4])) for r in rows.tolist()]


def _box(corners: Iterable[float]) -> Box:
    left, top, right, bottom = map(float, corners)
    return left, top, right, bottom


def _ground_truth(source: BoxSource) -> Annotations:
    """Every object of a set as the JSON tree that pycocotools reads: boxes as x, y, width, height.

    The areas are the annotations' own, which decide whether an object is small, medium or large.
    """
    images: list[dict[str, int]] = []
    annotations: list[dict[str, object]] = []
    for index in range(len(source)):
        number, size, boxes = source.image_id(index), source.size(index), source.boxes(index)
        images.append({"id": number, **({} if size is None else {"width": size[0], "height": size[1]})})
        for ltrb, kind, crowd, area in zip(
            boxes.ltrb.tolist(), boxes.classes.tolist(), boxes.crowd.tolist(), boxes.areas.tolist(), strict=True
        ):
            left, top, right, bottom = ltrb
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": source.category_ids[kind],
                    "bbox": [left, top, right - left, bottom - top],
                    "area": area,
                    "iscrowd": int(crowd),
                }
            )
    categories = [{"id": i, "name": name} for i, name in zip(source.category_ids, source.classes, strict=True)]
    return {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": categories}
