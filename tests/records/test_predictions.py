"""Predictions of version 0.1 are read, and written with the same keys."""

import json
from pathlib import Path

import pytest

from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.predictions import DetectionExample, Mistakes

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1"


def test_mistakes_of_version_0_1_are_read_and_written_alike() -> None:
    tree = json.loads((GOLDEN / "classifier" / "predictions" / "mistakes.json").read_text())
    assert encode(decode(Mistakes, tree)) == tree


def test_examples_of_version_0_1_are_read_and_written_alike() -> None:
    trees = json.loads((GOLDEN / "detector" / "predictions" / "examples.json").read_text())
    assert trees
    assert [encode(decode(DetectionExample, tree)) for tree in trees] == trees


def test_lists_of_different_lengths_are_damage() -> None:
    with pytest.raises(DamagedRecord, match="differ in length"):
        decode(Mistakes, {"classes": ["a", "b"], "samples": [1], "correct": [1]})
