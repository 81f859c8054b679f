"""Collecting detections: pixels, order of samples, and the documents written after an evaluation."""

import pickle

import numpy as np
import pytest
import torch

from vernier.data.loading.targets import BoxTargets
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_boxes
from vernier.data.sources.base import BoxSource
from vernier.records.codec import decode
from vernier.records.predictions import DetectionExample
from vernier.tasks.detection.boxes import Detections
from vernier.tasks.detection.score import EXAMPLES, DetectionScore, in_pixels, name_rows


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BoxSource:
    spec = ShapesSpec(kind="detect", train=2, val=EXAMPLES + 2, size_px=96, seed=5)
    return open_boxes(str(make_shapes(tmp_path_factory.mktemp("boxes") / "set", spec)), "val")


def test_boxes_of_a_diverged_model_are_no_detections(source: BoxSource) -> None:
    """An evaluator counted a box with NaN as a correct prediction of any object."""
    detections, targets = perfect(source, [0, 1])
    score = DetectionScore(source)
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
    score = DetectionScore(source)
    score.add(*perfect(source, list(range(len(source)))))
    score.collect()
    result = score.result()
    assert result.figures["AP"] == pytest.approx(1.0)
    assert result.samples == score.samples == len(source)
    assert result.detections == len(score.rows())


def test_the_result_does_not_depend_on_who_evaluated_what(source: BoxSource) -> None:
    whole, halves = DetectionScore(source), [DetectionScore(source), DetectionScore(source)]
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
    score = DetectionScore(source)
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
    (rows,) = in_pixels(detections, torch.tensor([[100, 200]]))  # height, width
    (predicted,) = name_rows(rows, ("cat", "dog"))
    assert (predicted.class_name, predicted.score) == ("dog", 0.5)
    assert predicted.box == pytest.approx((0, 50, 200, 100))
