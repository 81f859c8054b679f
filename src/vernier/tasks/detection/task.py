"""Object detection with SSD's default boxes: joins the readers, the loss, the prediction and the score."""

import torch

from vernier.config import Machine, Recipe
from vernier.config.checks import check_loader
from vernier.data.augment.normalize import describe_normalisation
from vernier.data.loading.box_readers import BoxEvalReader, BoxTrainReader
from vernier.data.loading.targets import BoxTargets
from vernier.data.sources import Source, open_boxes
from vernier.data.sources.base import BoxSource
from vernier.data.sources.views import with_channels
from vernier.devices import kinds
from vernier.models.ssd import anchors_of
from vernier.records.predictions import ScoredClass
from vernier.tasks.base import BatchLoss, CountingReader, Forward, MicroStep

from .boxes import Detections, detect
from .coco import find_evaluator
from .loss import detection_loss
from .score import DetectionScore, in_pixels, name_rows


class Detect:
    """Any number of objects per image, each with a box and a class."""

    name, metric = "detect", "AP"

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._anchors = anchors_of(recipe.model, recipe.data.image_px)
        self._anchors_on_device = self._anchors

    def open(self, split: str, *, whole: bool = False) -> BoxSource:
        data = self._recipe.data
        source = open_boxes(data.source, split, val_share=data.val_share, whole=whole, hold_out=data.hold_out)
        return _with_boxes(with_channels(source, len(data.mean)))

    def describe_preparation(self) -> str:
        data = self._recipe.data
        size = f"{data.eval_px} x {data.eval_px}"
        return f"whole image resized to {size}, {data.interpolation}, {describe_normalisation(data)}"

    def outputs(self, classes: int) -> int:
        """One output per class, and output 0 for the background."""
        return classes + 1

    def train_reader(self, source: Source, cached: Source, machine: Machine) -> CountingReader:
        check_loader(machine, self._recipe, detector=True)
        if self._recipe.eval.every_epochs > 0:
            find_evaluator()  # before the first epoch, not after it
        compiled = machine.backend == "compiled"
        images = _with_boxes(source if compiled else cached)
        return BoxTrainReader(images, self._recipe.data, self._recipe.augment, self._recipe.seed, compiled=compiled)

    def eval_reader(self, source: Source) -> CountingReader:
        return BoxEvalReader(_with_boxes(source), self._recipe.data)

    def loss(
        self, forward: Forward, images: torch.Tensor, targets: BoxTargets, at: MicroStep, *, count_hits: bool = False
    ) -> BatchLoss:
        offsets, logits = forward(images)
        anchors = self._anchors_on(images.device)
        return BatchLoss(detection_loss(offsets, logits, targets, anchors, self._recipe.detect))

    def predict(self, forward: Forward, images: torch.Tensor) -> Detections:
        offsets, logits = forward(images)
        on_host = kinds()[images.device.type].detections_on_host
        anchors = self._anchors if on_host else self._anchors_on(images.device)
        return detect(offsets, logits, anchors, self._recipe.detect)

    def _anchors_on(self, device: torch.device) -> torch.Tensor:
        if self._anchors_on_device.device != device:
            self._anchors_on_device = self._anchors.to(device)
        return self._anchors_on_device

    def name_predictions(
        self, predicted: Detections, targets: BoxTargets, classes: tuple[str, ...]
    ) -> list[list[ScoredClass]]:
        return [name_rows(rows, classes) for rows in in_pixels(predicted, targets.sizes)]

    def score(self, source: Source) -> DetectionScore:
        find_evaluator()  # before the images are evaluated
        return DetectionScore(_with_boxes(source))

    def target(self) -> float | None:
        return self._recipe.eval.target_ap

    def category_ids(self, source: Source) -> tuple[int, ...]:
        return tuple(_with_boxes(source).category_ids)


def _with_boxes(source: Source) -> BoxSource:
    assert isinstance(source, BoxSource), "a detector opens its own data, so it has boxes"
    return source
