"""The twelve figures against COCO's own code, on COCO's own example and on random sets, with every evaluator."""

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vernier import recipes
from vernier.config import Machine
from vernier.errors import ConfigError
from vernier.records.run import EvalResult
from vernier.tasks.detection.coco import EVALUATORS, FIGURES, _CocoEvaluator, coco_figures, find_evaluator
from vernier.tasks.detection.task import Detect

IDS = [0, 10, 20, 30, 40, 50, 60, 70]


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
    """Objects of all sizes in eight images, some of them crowds; detections near them, doubled, and anywhere.

    Many scores are equal. One image has no object and more detections than count, one has neither.
    """
    chance = np.random.default_rng(seed)
    annotations: list[dict[str, Any]] = []
    rows = []
    for image in IDS[:6]:
        for _ in range(chance.integers(0, 6)):
            x, y = chance.uniform(0, 300, 2).round()
            w, h = (chance.choice([10, 50, 150]) * chance.uniform(0.5, 1.5, 2)).round()
            kind = int(chance.integers(1, 4)) * 7
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": kind,
                    "bbox": [float(x), float(y), float(w), float(h)],
                    "area": float(w * h),
                    "iscrowd": int(chance.random() < 0.1),
                }
            )
            for _ in range(chance.integers(0, 3)):
                dx, dy, dw, dh = chance.normal(0, w / 15, 4)
                rows.append([image, x + dx, y + dy, max(1, w + dw), max(1, h + dh), chance.random(), kind])
        rows.append([image, *chance.uniform(0, 200, 2), 40, 40, chance.random(), 14])
    rows += [[IDS[6], *chance.uniform(0, 200, 2), 40, 40, chance.random(), 14] for _ in range(120)]
    truth = {
        "images": [{"id": i, "width": 600, "height": 600} for i in IDS],
        "categories": [{"id": k, "name": f"kind {k}"} for k in (7, 14, 21, 28)],
        "annotations": annotations,
    }
    detections = chance.permutation(np.array(rows))
    if seed % 2:
        detections[:, 5] = detections[:, 5].round(1)
    return truth, detections


@pytest.mark.parametrize("seed", range(5))
def test_any_set_gives_the_same_figures_as_cocos_own_code(seed: int) -> None:
    truth, rows = random_set(seed)
    assert as_listed(coco_figures(truth, rows, IDS)) == pytest.approx(judge(truth, rows, IDS), abs=1e-6)


@pytest.fixture(params=EVALUATORS, ids=lambda evaluator: evaluator.package)
def evaluator(request: pytest.FixtureRequest) -> _CocoEvaluator:
    """Every evaluator that is installed."""
    each: _CocoEvaluator = request.param
    if not each.installed():
        pytest.skip(f"{each.package} is not installed")
    return each


@pytest.mark.parametrize("seed", range(12))
def test_every_evaluator_gives_the_same_results(evaluator: _CocoEvaluator, seed: int) -> None:
    truth, rows = random_set(seed)
    ids = IDS if seed % 3 else IDS[2:5]
    results, expected = evaluator.evaluate(truth, rows, ids), find_evaluator().evaluate(truth, rows, ids)
    assert results.category_ids == expected.category_ids == [7, 14, 21, 28]
    # faster-coco-eval has 1.0 for a precision that is 1 - 2**-52 in the others; everything else is bit-identical
    allowed = 2.0**-52 if evaluator.package == "faster-coco-eval" else 0.0
    assert np.abs(results.precision - expected.precision).max() <= allowed
    assert np.abs(results.stats - expected.stats).max() <= allowed
    assert np.abs(results.stats - judge(truth, rows, ids)).max() <= 2.0**-52


def test_every_evaluator_takes_sets_without_detections_objects_or_images(evaluator: _CocoEvaluator) -> None:
    truth, rows = random_set(1)
    none, empty = np.zeros((0, 7)), {**truth, "annotations": []}
    assert evaluator.evaluate(truth, none, IDS).stats.tolist() == [0.0] * 12
    assert evaluator.evaluate(empty, rows, IDS).stats.tolist() == [-1.0] * 12
    assert evaluator.evaluate(empty, none, IDS).stats.tolist() == [-1.0] * 12
    assert evaluator.evaluate(truth, none, []).stats.tolist() == [-1.0] * 12


def test_the_ground_truth_is_not_changed(evaluator: _CocoEvaluator) -> None:
    truth, rows = random_set(2)
    before = json.dumps(truth)
    evaluator.evaluate(truth, rows, IDS)
    assert json.dumps(truth) == before


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let these packages be absent."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def test_the_first_installed_evaluator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ("hotcoco", "faster_coco_eval", "pycocotools")
    for package in packages:
        pytest.importorskip(package)
    truth, rows = random_set(4)
    used, results = [], []
    for hidden in (None, *packages[:2]):
        hide(monkeypatch, *([hidden] if hidden else []))
        used.append(find_evaluator().package)
        results.append(as_listed(coco_figures(truth, rows, IDS)))
    assert used == ["hotcoco", "faster-coco-eval", "pycocotools"]
    assert results[1] == pytest.approx(results[0], abs=1e-15)
    assert results[2] == results[0]


def test_without_an_evaluator_training_and_evaluation_are_refused_before_they_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "hotcoco", "faster_coco_eval", "pycocotools")
    task = Detect(recipes.get("ssd-shapes-quick"))
    with pytest.raises(ConfigError, match="pip install hotcoco"):
        task.train_reader(None, None, Machine())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pip install hotcoco"):
        task.score(None)  # type: ignore[arg-type]


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
