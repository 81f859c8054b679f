"""COCO's twelve figures, computed by a maintained evaluator (hotcoco); nothing of the metric is computed here."""

import contextlib
import io
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.records.run import ClassScore, EvalResult

FIGURES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of COCO's own summary; 0 to 1, None where the data has no object of the kind."""

Rows = npt.NDArray[np.float64]
"""[detections, 7]: image id, left, top, width, height in pixels, score, category id."""


def coco_figures(ground_truth: dict[str, Any], rows: Rows, image_ids: list[int]) -> EvalResult:
    """Compute the twelve figures over the given images, and AP and AP50 per category.

    `ground_truth` is COCO's own JSON document of annotations.
    """
    from hotcoco import COCO, COCOeval

    truth = COCO(ground_truth)
    evaluator = COCOeval(truth, truth.loadRes(rows), "bbox")
    evaluator.params.imgIds = image_ids
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its table
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return EvalResult(
        samples=len(image_ids),
        detections=len(rows),
        classes=_by_class({c["id"]: c["name"] for c in ground_truth["categories"]}, evaluator),
        figures={
            name: None if value < 0 else float(value) for name, value in zip(FIGURES, evaluator.stats, strict=True)
        },
    )


def _by_class(names: dict[int, str], evaluator: Any) -> tuple[ClassScore, ...]:
    # [IoU threshold, recall, category, area, detections per image]: all areas, the highest limit of detections
    precision = np.asarray(evaluator.eval["precision"])[:, :, :, 0, -1]
    return tuple(
        ClassScore(
            category_id=int(category),
            name=names[category],
            AP=_mean(precision[:, :, k]),
            AP50=_mean(precision[0, :, k]),
        )
        for k, category in enumerate(evaluator.params.catIds)
    )


def _mean(precision: npt.NDArray[np.float64]) -> float | None:
    defined = precision[precision > -1]
    return float(defined.mean()) if defined.size else None
