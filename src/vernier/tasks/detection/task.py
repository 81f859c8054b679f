"""Object detection with default boxes: SSD's loss in training, COCO's figures in evaluation."""

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Machine, Recipe
from vernier.data.decoding.decode import BadImage, Image, encode_thumbnail
from vernier.data.loading.box_readers import BoxEvalReader, BoxTrainReader
from vernier.data.loading.targets import BoxTargets, ground_truth
from vernier.data.sources import Source, open_boxes
from vernier.data.sources.base import BoxSource
from vernier.errors import ConfigError
from vernier.models import info, ssd_spec
from vernier.models.ssd import levels, make_anchors
from vernier.records.predictions import ScoredClass
from vernier.tasks.base import CountingReader, Forward, Moment
from vernier.tasks.detection.boxes import Detections, detect
from vernier.tasks.detection.coco import Rows, coco_figures
from vernier.tasks.detection.loss import detection_loss

EXAMPLES, EXAMPLE_BOXES, EXAMPLE_PX = 12, 40, 400


class Detect:
    """Any number of objects an image, each with a box and a class."""

    name, metric = "detect", "AP"

    def __init__(self, recipe: Recipe) -> None:
        if recipe.data.image_px != recipe.data.eval_px:
            raise ConfigError(
                f"data.image_px = {recipe.data.image_px} and data.eval_px = {recipe.data.eval_px}: a detector's default boxes "
                "belong to one image size. Set both alike."
            )
        if recipe.eval.flip_tta:
            raise ConfigError("eval.flip_tta is for classifiers. Leave it out.")
        self._recipe = recipe
        spec = ssd_spec(recipe.model.name, recipe.model.box_sizes)
        self._anchors = make_anchors(
            levels(info(recipe.model.name).arch, spec, recipe.data.image_px, recipe.model.stem)
        )

    def open(self, split: str) -> BoxSource:
        return open_boxes(self._recipe.data.source, split, val_share=self._recipe.data.val_share)

    def outputs(self, classes: int) -> int:
        """Class 0 is the background."""
        return classes + 1

    def train_reader(self, source: Source, kept: Source, machine: Machine) -> CountingReader:
        if machine.backend != "native":
            raise ConfigError(f"machine.backend = {machine.backend} reads for classifiers. Use native for a detector.")
        return BoxTrainReader(_with_boxes(kept), self._recipe.data, self._recipe.augment, self._recipe.seed)

    def eval_reader(self, source: Source) -> CountingReader:
        return BoxEvalReader(_with_boxes(source), self._recipe.data)

    def loss(self, forward: Forward, images: torch.Tensor, targets: BoxTargets, when: Moment) -> torch.Tensor:
        offsets, logits = forward(images)
        return detection_loss(offsets, logits, targets, self._anchors_on(images.device), self._recipe.detect)

    def predict(self, forward: Forward, images: torch.Tensor) -> Detections:
        offsets, logits = forward(images)
        return detect(offsets.float(), logits.float(), self._anchors_on(images.device), self._recipe.detect)

    def _anchors_on(self, device: torch.device) -> torch.Tensor:
        if self._anchors.device != device:
            self._anchors = self._anchors.to(device)
        return self._anchors

    def readable(self, predicted: Detections, targets: BoxTargets, classes: tuple[str, ...]) -> list[list[ScoredClass]]:
        return [
            [ScoredClass(class_name=classes[int(r[5])], score=r[4], box=tuple(r[:4])) for r in rows.tolist()]
            for rows in in_pixels(predicted, targets.sizes)
        ]

    def score(self, source: Source) -> "DetectionScore":
        return DetectionScore(_with_boxes(source))

    def target(self) -> float | None:
        return self._recipe.eval.target_ap

    def facts(self, source: Source) -> dict[str, Any]:
        return {"category_ids": list(_with_boxes(source).category_ids)}


def _with_boxes(source: Source) -> BoxSource:
    assert isinstance(source, BoxSource), "a detector opens its data itself"
    return source


class DetectionScore:
    """Detections by sample, so that neither the order nor the process they come from can matter."""

    def __init__(self, source: BoxSource) -> None:
        self._source = source
        self._found: dict[int, npt.NDArray[np.float64]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_found": self._found, "_source": None}  # the data set does not travel between processes

    @property
    def samples(self) -> int:
        return len(self._found)

    def add(self, predicted: Detections, targets: BoxTargets) -> None:
        for sample, found in zip(targets.samples.tolist(), in_pixels(predicted, targets.sizes), strict=True):
            self._found[sample] = found

    def merge(self, others: Iterable["DetectionScore"]) -> None:
        for other in others:
            self._found.update(other._found)

    def rows(self) -> Rows:
        """Every detection with the ids of the annotations, by sample and falling score."""
        return np.concatenate([self._rows_of(s) for s in sorted(self._found)] or [np.zeros((0, 7))])

    def _rows_of(self, sample: int) -> Rows:
        found, rows = self._found[sample], np.empty((len(self._found[sample]), 7))
        rows[:, 0] = self._source.image_id(sample)
        rows[:, 1:3], rows[:, 3:5] = found[:, :2], found[:, 2:4] - found[:, :2]
        rows[:, 5] = found[:, 4]
        rows[:, 6] = np.asarray(self._source.category_ids)[found[:, 5].astype(np.int64)]
        return rows

    def result(self) -> dict[str, Any]:
        """The twelve figures, `samples`, how many `detections`, and `classes`."""
        rows = self.rows()
        ids = [self._source.image_id(s) for s in sorted(self._found)]
        figures = coco_figures(ground_truth(self._source), rows, ids)
        classes = figures.pop("classes")
        return {**figures, "samples": self.samples, "detections": len(rows), "classes": classes}

    def documents(self) -> dict[str, Any]:
        """`detections`, in the form of COCO's results files; `examples`: some images with what is and what was found there."""
        return {
            "examples": self._examples(),
            "detections": [
                {
                    "image_id": int(r[0]),
                    "category_id": int(r[6]),
                    "bbox": r[1:5],
                    "score": r[5],
                }
                for r in self.rows().tolist()
            ],
        }

    def _examples(self) -> list[dict[str, Any]]:
        """Evenly spaced over the evaluated images: always the same ones. Boxes are left, top, right, bottom, in shares."""
        every = sorted(self._found)
        chosen = [every[i * len(every) // EXAMPLES] for i in range(EXAMPLES)] if len(every) > EXAMPLES else every
        found = []
        for sample in chosen:
            with contextlib.suppress(BadImage, OSError):
                found.append(self._example(sample, self._source.image(sample)))
        return found

    def _example(self, sample: int, image: Image) -> dict[str, Any]:
        scale = np.array([image.shape[1], image.shape[0]] * 2, np.float64)
        truth, mine = self._source.boxes(sample), self._found[sample]
        best = mine[np.argsort(-mine[:, 4], kind="stable")][:EXAMPLE_BOXES]
        return {
            "image": self._source.describe(sample), "width": image.shape[1], "height": image.shape[0],
            "jpeg": encode_thumbnail(image, EXAMPLE_PX),
            "truth": [
                {"box": (box / scale).tolist(), "class": self._source.classes[kind]}
                for box, kind in zip(truth.ltrb, truth.classes.tolist(), strict=True)
            ],
            "found": [
                {"box": (row[:4] / scale).tolist(), "score": float(row[4]), "class": self._source.classes[int(row[5])]}
                for row in best
            ],
        }  # fmt: skip


def in_pixels(predicted: Detections, sizes: torch.Tensor) -> list[npt.NDArray[np.float64]]:
    """For each image [detections, 6]: left, top, right, bottom in its own pixels, score, class from 0."""
    scale = sizes.flip(1).repeat(1, 2).double().cpu()  # width, height, width, height
    ltrb = predicted.ltrb.double().cpu().clamp(0, 1) * scale[:, None]
    parts = (ltrb, predicted.scores.double().cpu()[..., None], predicted.classes.double().cpu()[..., None] - 1)
    joined = torch.cat(parts, dim=2).numpy()
    return [joined[i, :n] for i, n in enumerate(predicted.count.tolist())]
