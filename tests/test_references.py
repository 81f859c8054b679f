"""Options and settings in messages: data until the edge words them."""

from pathlib import Path

import pytest

from vernier.references import Reference, command, given, plain, references, shown, use, worded


def test_a_text_carries_what_it_names() -> None:
    text = (
        f"{given('machine.mode', 'trace')} cannot be exported. Use {use('machine.mode', 'eager')}, not {given('out')}."
    )
    assert references(text) == [
        Reference(role="given", name="machine.mode", value="trace", has_value=True),
        Reference(role="use", name="machine.mode", value="eager", has_value=True),
        Reference(role="given", name="out"),
    ]
    assert references("nothing is named here") == []


def test_without_an_edge_references_are_settings() -> None:
    text = f"{given('optim.lr', 0.5)}: use {use('optim.lr', None)}, {use('out', slot='FILE')} or {use('seed')}."
    assert plain(text) == "optim.lr = 0.5: use optim.lr=none, out=FILE or seed."
    assert plain("no names") == "no names"


def test_commands_have_arguments_and_options() -> None:
    text = command("data prepare", "coco", Path("a"), format="tfrecord")
    (reference,) = references(text)
    assert (reference.role, reference.name) == ("command", "data.prepare")
    assert reference.value == {"arguments": ["coco", "a"], "format": "tfrecord"}
    assert plain(text) == "vernier data prepare coco a format=tfrecord"


def test_an_edge_words_every_reference_by_itself() -> None:
    assert worded(f"a {given('x', 1)} b {use('y')}", lambda reference: reference.name.upper()) == "a X b Y"


@pytest.mark.parametrize(
    "value", ["", "a b", 'quoted "text"', "\u27e7 closes", "line\nbreak", [1, "two"], {"a": 1}, None, True, 1e-9]
)
def test_values_survive_the_text_they_are_in(value: object) -> None:
    (reference,) = references(f"before {given('name', value)} after")
    expected = value.replace("\u27e7", "") if isinstance(value, str) else value
    assert (reference.name, reference.value, reference.has_value) == ("name", expected, True)


def test_values_that_json_has_not_become_texts() -> None:
    (reference,) = references(given("out", Path("a/b")))
    assert reference.value == "a/b"
    assert references(given("batch", (1, 2)))[0].value == [1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "none"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1 / 3, repr(1 / 3)),
        ((1, 2.0), "[1, 2]"),
        ("a b", "a b"),
    ],
)
def test_values_are_shown_as_a_settings_file_has_them(value: object, text: str) -> None:
    assert shown(value) == text
