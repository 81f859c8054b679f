"""Matching the classes of data with a model's."""

import pytest

from vernier.engine.inference.classes import match_classes
from vernier.errors import ConfigError
from vernier.references import references

ANIMALS = ("ape", "bee", "cat", "dog")
NUMBERS = tuple(map(str, range(1000)))


def test_the_same_names_need_no_note() -> None:
    match = match_classes(ANIMALS, ANIMALS)
    assert (match.how, match.outputs, match.notes) == ("name", (0, 1, 2, 3), ())


def test_another_order_is_mapped_and_noted() -> None:
    match = match_classes(ANIMALS, ("cat", "ape", "dog", "bee"))
    assert (match.how, match.outputs) == ("order", (2, 0, 3, 1))
    assert "in another order (cat, ape, dog, bee instead of ape, bee, cat, dog)" in match.notes[0]


def test_some_of_the_classes_are_mapped_and_the_note_says_over_what_the_metric_is() -> None:
    match = match_classes(ANIMALS, ("dog", "bee"))
    assert (match.how, match.outputs) == ("subset", (3, 1))
    assert match.notes == ("2 of the model's 4 classes are in this data; top-1 is over all 4 outputs",)
    assert "AP is over those" in match_classes(ANIMALS, ("dog",), metric="AP").notes[0]


def test_other_names_are_refused_side_by_side() -> None:
    with pytest.raises(ConfigError, match=r"1: bee \| Biene, 2: cat \| Katze\..*classes_by_number=true"):
        match_classes(ANIMALS, ("ape", "Biene", "Katze", "dog"))
    with pytest.raises(ConfigError, match=r"has 5, of which the model does not know 1: emu\."):
        match_classes(ANIMALS, (*ANIMALS, "emu"))
    with pytest.raises(ConfigError, match="does not know 1: Hund"):
        match_classes(ANIMALS, ("ape", "Hund"))


def test_names_that_occur_twice_cannot_be_matched() -> None:
    with pytest.raises(ConfigError, match="other names"):
        match_classes(("a", "b", "a"), ("a", "a", "b"))
    assert match_classes(("a", "b", "a"), ("a", "b", "a")).how == "name"


def test_numbers_are_taken_on_request_when_there_are_as_many() -> None:
    match = match_classes(ANIMALS, ("w", "x", "y", "z"), by_number=True)
    assert (match.how, match.outputs) == ("number", (0, 1, 2, 3))
    assert references(match.notes[0])[0].name == "classes_by_number"
    with pytest.raises(ConfigError, match="has 4 classes, the data has 2"):
        match_classes(ANIMALS, ("ape", "bee"), by_number=True)


def test_weights_without_names_are_matched_by_number() -> None:
    match = match_classes(NUMBERS, tuple(f"n{i:08d}" for i in range(1000)), named=False)
    assert match.how == "number"
    assert "classes taken by number (the weights have no class names)" in match.notes[0]
    with pytest.raises(ConfigError, match="no class names to match by"):
        match_classes(NUMBERS, ("tench", "goldfish"), named=False)


def test_folders_that_are_numbers_are_a_subset_of_weights_without_names() -> None:
    match = match_classes(NUMBERS, ("3", "42", "999"), named=False)
    assert (match.how, match.outputs) == ("subset", (3, 42, 999))
    assert "999 is output 999, counted from 0" in match.notes[0]
    with pytest.raises(ConfigError, match="1,000 classes, the data has 2"):
        match_classes(NUMBERS, ("3", "1000"), named=False)
    assert match_classes(("0", "1"), ("1", "2"), named=False).how == "number"
