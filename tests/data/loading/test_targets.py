"""Boxes of several images in one padded batch, and of a whole set for the evaluator."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vernier.data.loading.targets import BoxTargets, coco_ground_truth
from vernier.data.sources import open_boxes


def _boxes(count: int) -> torch.Tensor:
    return torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(count, 1)


def test_images_are_padded_to_the_next_multiple_of_eight() -> None:
    targets = BoxTargets.pad(
        [_boxes(3), _boxes(0), _boxes(9)],
        [torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.int64), torch.arange(1, 10)],
        samples=[7, 4, 5],
        sizes=[(480, 640), (10, 20), (1, 1)],
    )
    assert len(targets) == 3
    assert targets.ltrb.shape == (3, 16, 4)
    assert targets.valid.sum(1).tolist() == [3, 0, 9]
    assert targets.classes[0].tolist() == [1, 2, 3] + [0] * 13
    assert targets.ltrb[~targets.valid].abs().sum() == 0
    assert targets.sizes[0].tolist() == [480, 640]
    assert targets.samples.dtype == torch.int64


def test_a_batch_without_any_box_still_has_one_padded_block() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    targets = BoxTargets.pad([_boxes(0)], [nothing], samples=[0], sizes=[(8, 8)])
    assert targets.ltrb.shape == (1, 8, 4)
    assert not targets.valid.any()


def test_moving_keeps_every_part() -> None:
    targets = BoxTargets.pad([_boxes(1)], [torch.tensor([1])], samples=[0], sizes=[(8, 8)]).to("meta")
    assert {str(t.device) for t in vars(targets).values()} == {"meta"}


def test_cocos_ground_truth_comes_back_as_it_was(real_data: Callable[[str], Path]) -> None:
    root = real_data("coco")
    ours = coco_ground_truth(open_boxes(str(root), "val"))
    annotated = json.loads((root / "annotations/instances_val2017.json").read_text())
    assert {(i["id"], i["width"], i["height"]) for i in ours["images"]} == {
        (i["id"], i["width"], i["height"]) for i in annotated["images"]
    }
    assert [(c["id"], c["name"]) for c in ours["categories"]] == [(c["id"], c["name"]) for c in annotated["categories"]]

    def objects(tree: dict[str, list[dict[str, float]]]) -> list[tuple[float, ...]]:
        return sorted((a["image_id"], a["category_id"], a["iscrowd"], a["area"]) for a in tree["annotations"])

    assert objects(ours) == objects(annotated)
    boxes = {(a["image_id"], a["area"]): a["bbox"] for a in annotated["annotations"]}
    for a in ours["annotations"]:
        assert a["bbox"] == pytest.approx(boxes[a["image_id"], a["area"]], abs=1e-9)
    assert [a["id"] for a in ours["annotations"]] == list(range(1, len(annotated["annotations"]) + 1))


def test_perfect_detections_of_a_voc_set_score_one(real_data: Callable[[str], Path]) -> None:
    coco_tools = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
    from pycocotools.cocoeval import COCOeval

    tree = coco_ground_truth(open_boxes(str(real_data("bccd")), "test"))
    truth = coco_tools.COCO()
    truth.dataset = tree
    truth.createIndex()
    detections = truth.loadRes(
        [{**{k: a[k] for k in ("image_id", "category_id", "bbox")}, "score": 0.9} for a in tree["annotations"]]
    )
    scored = COCOeval(truth, detections, "bbox")
    scored.evaluate()
    scored.accumulate()
    scored.summarize()
    assert scored.stats[0] == pytest.approx(1.0)
