"""COCO's twelve figures, computed by a maintained evaluator; nothing of the metric is computed here.

Every evaluator is used through the interface of pycocotools. Random sets with ties of scores, crowds, images without
objects or detections, and more than 100 detections per image (tests/tasks/detection/test_coco.py) give the same
results with all of them, hotcoco's and pycocotools' bit-identical. Known differences of hotcoco 1.3.0,
faster-coco-eval 1.8.0 and pycocotools 2.0.11:

- a precision of 1.0 in faster-coco-eval can be 1 - 2**-52 in the others, which add that much to its denominator;
- NaN as a score raises an error in hotcoco and faster-coco-eval; pycocotools sorts it last;
- NaN in a box matches any object in hotcoco and pycocotools, and none in faster-coco-eval;
- a detection in an image that is not in the annotations is ignored by hotcoco, and raises an error in the others.
"""

import contextlib
import importlib.util
import io
import pkgutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.errors import ConfigError
from vernier.records.run import ClassScore, EvalResult

FIGURES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of COCO's own summary; 0 to 1, None where the data has no object of the kind."""

Annotations = dict[str, Any]
"""COCO's own JSON document of annotations."""

Floats = npt.NDArray[np.float64]

Rows = Floats
"""[detections, 7]: image id, left, top, width, height in pixels, score, category id."""


@dataclass(frozen=True)
class _CocoEvaluation:
    """What an evaluator computed; -1 where the data has no object of the kind."""

    stats: Floats
    """In the order of `FIGURES`."""
    precision: Floats
    """[IoU threshold, recall, category, area, detections per image]"""
    category_ids: list[int]


@dataclass(frozen=True)
class _CocoEvaluator:
    """An evaluator with the interface of pycocotools, and where its two classes are."""

    package: str
    annotations: str
    evaluation: str

    def installed(self) -> bool:
        return importlib.util.find_spec(self.annotations.partition(":")[0].partition(".")[0]) is not None

    def evaluate(self, ground_truth: Annotations, rows: Rows, image_ids: list[int]) -> _CocoEvaluation:
        """Evaluate the given images; the ground truth is not changed."""
        # Evaluators write flags into annotations, so they get copies. Only those of the images, because hotcoco takes
        # an empty list of images for all of them.
        images = set(image_ids)
        annotations = [dict(a) for a in ground_truth["annotations"] if a["image_id"] in images]
        with contextlib.redirect_stdout(io.StringIO()):  # they print tables
            truth = self._load({**ground_truth, "annotations": annotations})
            # pycocotools' loadRes fails without a detection
            detections = truth.loadRes(rows) if len(rows) else self._load({**ground_truth, "annotations": []})
            evaluator = pkgutil.resolve_name(self.evaluation)(truth, detections, "bbox")
            evaluator.params.imgIds = image_ids
            evaluator.evaluate()
            evaluator.accumulate()
            evaluator.summarize()
        return _CocoEvaluation(
            stats=np.asarray(evaluator.stats),
            precision=np.asarray(evaluator.eval["precision"]),
            category_ids=[int(category) for category in evaluator.params.catIds],
        )

    def _load(self, document: Annotations) -> Any:
        loaded = pkgutil.resolve_name(self.annotations)()
        loaded.dataset = document  # pycocotools' constructor takes a file only
        loaded.createIndex()
        return loaded


EVALUATORS = (
    _CocoEvaluator("hotcoco", "hotcoco:COCO", "hotcoco:COCOeval"),
    _CocoEvaluator("faster-coco-eval", "faster_coco_eval:COCO", "faster_coco_eval:COCOeval_faster"),
    _CocoEvaluator("pycocotools", "pycocotools.coco:COCO", "pycocotools.cocoeval:COCOeval"),
)
"""In the order of preference."""


def find_evaluator() -> _CocoEvaluator:
    """Return the first evaluator that is installed. Raises ConfigError if none is."""
    for evaluator in EVALUATORS:
        if evaluator.installed():
            return evaluator
    first, *others = (evaluator.package for evaluator in EVALUATORS)
    raise ConfigError(f"A detector's AP needs an evaluator: pip install {first} (or {' or '.join(others)}).")


def coco_figures(ground_truth: Annotations, rows: Rows, image_ids: list[int]) -> EvalResult:
    """Compute the twelve figures over the given images, and AP and AP50 per category."""
    computed = find_evaluator().evaluate(ground_truth, rows, image_ids)
    return EvalResult(
        samples=len(image_ids),
        detections=len(rows),
        classes=_by_class({c["id"]: c["name"] for c in ground_truth["categories"]}, computed),
        figures={
            name: None if value < 0 else float(value) for name, value in zip(FIGURES, computed.stats, strict=True)
        },
    )


def _by_class(names: dict[int, str], computed: _CocoEvaluation) -> tuple[ClassScore, ...]:
    precision = computed.precision[:, :, :, 0, -1]  # all areas, the highest limit of detections
    return tuple(
        ClassScore(
            category_id=category,
            name=names[category],
            AP=_mean(precision[:, :, k]),
            AP50=_mean(precision[0, :, k]),
        )
        for k, category in enumerate(computed.category_ids)
    )


def _mean(precision: Floats) -> float | None:
    defined = precision[precision > -1]
    return float(defined.mean()) if defined.size else None
