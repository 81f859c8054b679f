"""The twelve figures against COCO's own code, on COCO's own example and on random sets."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vernier.records.run import EvalResult
from vernier.tasks.detection.coco import FIGURES, coco_figures


def judge(truth: dict[str, Any], rows: Any, ids: list[int]) -> list[float]:
    """pycocotools' figures."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        gt = COCO()
        gt.dataset = {"info": {}, **truth}
        gt.createIndex()
        found = COCOeval(gt, gt.loadRes(rows), "bbox")
        found.params.imgIds = ids
        found.evaluate()
        found.accumulate()
        found.summarize()
    stats: list[float] = found.stats.tolist()
    return stats


def as_listed(result: EvalResult) -> list[float]:
    """As COCO's own code lists them: -1 where nothing is defined."""
    figures = [result.figures[name] for name in FIGURES]
    return [-1.0 if figure is None else figure for figure in figures]


def test_cocos_own_example_gives_cocos_own_figures(real_data: Callable[[str], Path]) -> None:
    folder = real_data("coco-eval")
    truth = json.loads((folder / "instances_val2014_100.json").read_text())
    found = json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text())
    rows = np.array([[d["image_id"], *d["bbox"], d["score"], d["category_id"]] for d in found])
    ids = [i["id"] for i in truth["images"]]
    result = coco_figures(truth, rows, ids)
    assert as_listed(result) == pytest.approx(judge(truth, rows, ids), abs=1e-6)
    assert [round(figure, 3) for figure in as_listed(result)[:3]] == [0.505, 0.697, 0.573]
    assert result.classes is not None
    assert len(result.classes) == 80
    per_class = [c.AP for c in result.classes if c.AP is not None]
    assert np.mean(per_class) == pytest.approx(result.figures["AP"])


def random_set(seed: int) -> tuple[dict[str, Any], Any]:
    """Objects of all sizes in eight images, some of them crowds; detections near them, doubled, and anywhere."""
    chance = np.random.default_rng(seed)
    annotations, rows = [], []
    for image in range(8):
        for _ in range(chance.integers(0, 6)):
            x, y = chance.uniform(0, 300, 2)
            w, h = chance.uniform(5, 200, 2)
            kind = int(chance.integers(1, 4)) * 7
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image * 10,
                    "category_id": kind,
                    "bbox": [x, y, w, h],
                    "area": w * h,
                    "iscrowd": int(chance.random() < 0.1),
                }
            )
            for _ in range(chance.integers(0, 3)):
                jitter = chance.normal(0, 6, 4)
                rows.append(
                    [
                        image * 10,
                        x + jitter[0],
                        y + jitter[1],
                        max(1, w + jitter[2]),
                        max(1, h + jitter[3]),
                        chance.random(),
                        kind,
                    ]
                )
        rows.append([image * 10, *chance.uniform(0, 200, 2), 40, 40, chance.random(), 14])
    truth = {
        "images": [{"id": i * 10, "width": 600, "height": 600} for i in range(8)],
        "categories": [{"id": k, "name": f"kind {k}"} for k in (7, 14, 21)],
        "annotations": annotations,
    }
    return truth, np.array(rows)


@pytest.mark.parametrize("seed", range(5))
def test_any_set_gives_the_same_figures_as_cocos_own_code(seed: int) -> None:
    truth, rows = random_set(seed)
    ids = [0, 10, 20, 30, 40, 50, 60, 70]
    assert as_listed(coco_figures(truth, rows, ids)) == pytest.approx(judge(truth, rows, ids), abs=1e-6)


def test_only_the_images_asked_for_count() -> None:
    truth, rows = random_set(3)
    some = [0, 10, 20]
    part = rows[np.isin(rows[:, 0], some)]
    assert as_listed(coco_figures(truth, part, some)) == pytest.approx(judge(truth, part, some), abs=1e-6)


def test_no_detection_is_a_figure_of_nought_and_nothing_to_find_is_none() -> None:
    truth, _ = random_set(1)
    nothing = coco_figures(truth, np.zeros((0, 7)), [0, 10])
    assert nothing.figures["AP"] == 0.0
    empty = coco_figures({**truth, "annotations": []}, np.zeros((0, 7)), [0, 10])
    assert empty.figures["AP"] is None
    assert all(c.AP is None for c in empty.classes or ())
