"""COCO's twelve figures, from a maintained evaluator; nothing of the metric is computed here."""

import contextlib
import io
from typing import Any

import numpy as np
import numpy.typing as npt

FIGURES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of COCO's own summary; 0 to 1, None where no object of the kind was there to be found."""

Rows = npt.NDArray[np.float64]
"""[detections, 7]: image id, left, top, width, height in pixels, score, category id."""


def coco_figures(ground_truth: dict[str, Any], rows: Rows, image_ids: list[int]) -> dict[str, Any]:
    """The twelve figures over the given images, and `classes`: AP and AP50 of each category."""
    from hotcoco import COCO, COCOeval

    truth = COCO(ground_truth)
    found = COCOeval(truth, truth.loadRes(rows), "bbox")
    found.params.imgIds = image_ids
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its table
        found.evaluate()
        found.accumulate()
        found.summarize()
    figures = {name: _defined(value) for name, value in zip(FIGURES, found.stats, strict=True)}
    return {**figures, "classes": _by_class(ground_truth, found)}


def _by_class(ground_truth: dict[str, Any], found: Any) -> list[dict[str, Any]]:
    """[IoU threshold, recall, category, area, detections an image]: all areas, the most detections."""
    precision = np.asarray(found.eval["precision"])[:, :, :, 0, -1]
    names = {c["id"]: c["name"] for c in ground_truth["categories"]}
    return [
        {
            "category_id": int(category),
            "name": names[category],
            "AP": _mean(precision[:, :, k]),
            "AP50": _mean(precision[0, :, k]),
        }
        for k, category in enumerate(found.params.catIds)
    ]


def _mean(precision: npt.NDArray[np.float64]) -> float | None:
    known = precision[precision > -1]
    return float(known.mean()) if known.size else None


def _defined(value: float) -> float | None:
    return None if value < 0 else float(value)
