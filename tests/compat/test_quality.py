"""Precision, recall, F1 and calibration of a classifier, compared with a plain implementation."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import Done, only_run
from vernier.api.runs import Result
from vernier.compat.quality import judge, lines
from vernier.config import Recipe
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources.folder import FolderSource
from vernier.store import RunDir
from vernier.tasks.classification import Classify

Runner = Callable[..., Done]


def _by_hand(logits: np.ndarray, labels: np.ndarray) -> dict[str, object]:
    """Written from the definitions, with loops."""
    n, classes = logits.shape
    scores = [[math.exp(z - max(row)) for z in row] for row in logits.tolist()]
    scores = [[s / sum(row) for s in row] for row in scores]
    taken = [row.index(max(row)) for row in scores]
    out: dict[str, object] = {"precision": [], "recall": [], "f1": []}
    for c in range(classes):
        tp = sum(t == c and y == c for t, y in zip(taken, labels, strict=True))
        fp = sum(t == c and y != c for t, y in zip(taken, labels, strict=True))
        fn = sum(t != c and y == c for t, y in zip(taken, labels, strict=True))
        out["precision"].append(tp / (tp + fp) if tp + fp else None)  # type: ignore[attr-defined]
        out["recall"].append(tp / (tp + fn) if tp + fn else None)  # type: ignore[attr-defined]
        out["f1"].append(2 * tp / (2 * tp + fp + fn) if tp + fp + fn else None)  # type: ignore[attr-defined]
    ece = 0.0
    for b in range(15):
        inside = [i for i in range(n) if b / 15 <= max(scores[i]) < (b + 1) / 15 or (b == 14 and max(scores[i]) == 1)]
        if inside:
            accuracy = sum(taken[i] == labels[i] for i in inside) / len(inside)
            ece += len(inside) / n * abs(accuracy - sum(max(scores[i]) for i in inside) / len(inside))
    return {**out, "ece": ece}


def test_precision_recall_f1_and_ece_are_those_of_a_plain_implementation(shapes: Path) -> None:
    rng, source = np.random.default_rng(4), FolderSource(shapes / "train")
    logits = rng.normal(0, 2, (500, 10)).astype(np.float32)
    labels = rng.choice(8, 500)  # none of the last two classes
    logits[:, 9] -= 30  # and no prediction of the last one
    scores = [Classify(Recipe()).score(source) for _ in range(2)]
    for begin in range(0, 500, 64):  # two processes share the batches
        part = slice(begin, begin + 64)
        targets = ClassTargets(torch.from_numpy(labels[part]), torch.arange(500)[part])
        scores[begin // 64 % 2].add(torch.from_numpy(logits[part]), targets)
    for score in scores:
        score.collect()
    scores[0].merge([scores[1]])
    quality, plain = scores[0].result().quality, _by_hand(logits, labels)
    assert quality is not None
    for name in ("precision", "recall", "f1"):
        assert [getattr(each, name) for each in quality.classes] == pytest.approx(plain[name])
    assert quality.ece == pytest.approx(plain["ece"], rel=1e-6)
    known = [value for value in plain["recall"] if value is not None]  # type: ignore[attr-defined]
    assert quality.balanced_accuracy == pytest.approx(sum(known) / len(known))
    assert quality.classes[8].recall is None
    assert quality.classes[9].f1 is None


def test_evaluation_output_python_and_json_have_them(
    vernier_here: Runner, shapes: Path, tiny: list[str], tmp_path: Path
) -> None:
    assert vernier_here("train", *tiny, "--steps", "2").code == 0
    run = only_run(tmp_path / "runs")
    printed = vernier_here("eval", str(run)).out
    assert "balanced accuracy" in printed
    assert "precision" in printed
    quality = vernier_here("eval", str(run), "--json").json()["quality"]
    assert [each["name"] for each in quality["classes"]] == list(FolderSource(shapes / "val").classes)
    assert sum(count for count, _, _ in quality["reliability"]) == 50
    result = RunDir(run).status().summary.result
    assert Result(result).quality == result.quality
    assert judge(["a"] * 101, {(0, 0): 1}, [0.0] * 45).classes == ()
    totals, head, *rows = lines(judge([f"c{n}" for n in range(30)], {(0, 0): 3, (1, 0): 1}, [0.0] * 45), 20)
    assert ("balanced accuracy 0.500" in totals, "weakest of 30" in head, len(rows)) == (True, True, 20)
