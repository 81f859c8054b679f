import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vernier import recipes
from vernier.config import Machine
from vernier.data.loading.targets import BoxTargets
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_boxes
from vernier.data.sources.base import BoxSource
from vernier.errors import ConfigError
from vernier.models import build
from vernier.records.codec import decode
from vernier.records.predictions import DetectionExample
from vernier.tasks.detection.boxes import Detections, _to_corners
from vernier.tasks.detection.task import EXAMPLES, Detect, _DetectionScore, _ground_truth, _in_pixels, _name_rows


def test_a_network_that_answers_a_default_box_detects_it() -> None:
    recipe = recipes.get("ssd-shapes-quick")
    task = Detect(recipe)
    network = build("ssd-small", num_classes=11, width=8, image_px=recipe.data.image_px)
    boxes = sum(len(level.shapes) * level.grid**2 for level in network.levels)  # type: ignore[union-attr]
    logits = torch.zeros(1, boxes, 11)
    logits[..., 0] = 20.0
    logits[0, 0, :2] = torch.tensor([0.0, 20.0])
    predicted = task.predict(lambda _: (torch.zeros(1, boxes, 4), logits), torch.zeros(1, 3, 128, 128))
    assert predicted.count.tolist() == [1]
    assert predicted.classes[0, 0] == 1
    torch.testing.assert_close(predicted.ltrb[0, 0], _to_corners(task._anchors)[0])


def test_other_loaders_are_refused() -> None:
    task = Detect(recipes.get("ssd-shapes-quick"))
    with pytest.raises(ConfigError, match="native"):
        task.train_reader(None, None, Machine(backend="dali-cpu"))  # type: ignore[arg-type]


def test_the_preparation_of_images_is_described() -> None:
    description = Detect(recipes.get("ssd-shapes-quick")).describe_preparation()
    assert description == "whole image resized to 128 x 128, bilinear, ImageNet mean and std"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BoxSource:
    spec = ShapesSpec(kind="detect", train=2, val=EXAMPLES + 2, size_px=96, seed=5)
    return open_boxes(str(make_shapes(tmp_path_factory.mktemp("boxes") / "set", spec)), "val")


def test_boxes_of_a_diverged_model_are_no_detections(source: BoxSource) -> None:
    """An evaluator counted a box with NaN as a correct prediction of any object."""
    detections, targets = perfect(source, [0, 1])
    score = _DetectionScore(source)
    boxes = detections.ltrb * float("nan")
    score.add(Detections(boxes, detections.scores, detections.classes, detections.count), targets)
    score.collect()
    assert score.samples == 2
    assert len(score.rows()) == 0


def perfect(source: BoxSource, samples: list[int]) -> tuple[Detections, BoxTargets]:
    """Every annotated object of the samples as a detection of score 0.9."""
    truth = [source.boxes(s) for s in samples]
    sizes = [source.image(s).shape[:2] for s in samples]
    most = max(len(t.classes) for t in truth)
    ltrb, scores = torch.zeros(len(samples), most, 4), torch.zeros(len(samples), most)
    classes = torch.zeros(len(samples), most, dtype=torch.int64)
    for i, (objects, (height, width)) in enumerate(zip(truth, sizes, strict=True)):
        count = len(objects.classes)
        ltrb[i, :count] = torch.from_numpy(np.asarray(objects.ltrb)) / torch.tensor([width, height, width, height])
        scores[i, :count], classes[i, :count] = 0.9, torch.from_numpy(np.asarray(objects.classes)) + 1
    count = torch.tensor([len(t.classes) for t in truth])
    empty = [torch.zeros(0, 4)] * len(samples), [torch.zeros(0, dtype=torch.int64)] * len(samples)
    targets = BoxTargets.pad(*empty, samples=samples, sizes=sizes)
    return Detections(ltrb, scores, classes, count), targets


def test_detections_equal_to_the_annotations_score_one(source: BoxSource) -> None:
    score = _DetectionScore(source)
    score.add(*perfect(source, list(range(len(source)))))
    score.collect()
    result = score.result()
    assert result.figures["AP"] == pytest.approx(1.0)
    assert result.samples == score.samples == len(source)
    assert result.detections == len(score.rows())


def test_the_result_does_not_depend_on_who_evaluated_what(source: BoxSource) -> None:
    whole, halves = _DetectionScore(source), [_DetectionScore(source), _DetectionScore(source)]
    samples = list(range(len(source)))
    whole.add(*perfect(source, samples))
    whole.collect()
    halves[0].add(*perfect(source, samples[1::2]))
    halves[0].collect()
    halves[1].add(*perfect(source, samples[::2]))
    halves[1].collect()
    halves[0].merge([pickle.loads(pickle.dumps(halves[1]))])
    assert halves[0].result() == whole.result()
    assert halves[0].documents() == whole.documents()


def test_examples_show_annotated_and_predicted_objects(source: BoxSource) -> None:
    score = _DetectionScore(source)
    score.add(*perfect(source, list(range(len(source)))))
    score.collect()
    documents = score.documents()["examples"]
    assert isinstance(documents, list)
    assert len(documents) == min(EXAMPLES, len(source))
    example = decode(DetectionExample, documents[0])
    assert len(example.objects) == len(example.truth)
    assert example.objects[0].box == pytest.approx(example.truth[0].box, abs=1e-5)
    assert all(0 <= side <= 1 for shown in example.objects for side in shown.box or ())


def test_boxes_are_clipped_to_the_image_and_named() -> None:
    ltrb = torch.tensor([[[-0.1, 0.5, 1.2, 1.0]]])
    detections = Detections(ltrb, torch.tensor([[0.5]]), torch.tensor([[2]]), torch.tensor([1]))
    (rows,) = _in_pixels(detections, torch.tensor([[100, 200]]))  # height, width
    (predicted,) = _name_rows(rows, ("cat", "dog"))
    assert (predicted.class_name, predicted.score) == ("dog", 0.5)
    assert predicted.box == pytest.approx((0, 50, 200, 100))


def test_cocos_ground_truth_comes_back_as_it_was(real_data: Callable[[str], Path]) -> None:
    root = real_data("coco")
    ours = _ground_truth(open_boxes(str(root), "val"))
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

    tree = _ground_truth(open_boxes(str(real_data("bccd")), "test"))
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
