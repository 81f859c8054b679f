"""Options in messages: named as they were given."""

import pytest

from vernier.api.wording import PythonWords
from vernier.cli.parser import parse
from vernier.cli.wording import ShellWords
from vernier.references import command, given, use
from vernier.requests.declaring import Request, argument, option, request
from vernier.requests.values import Assignments
from vernier.requests.wording import _flag_words, command_line


@request("train")
class Small(Request):
    """Train."""

    recipe: str | None = argument(None, help="Recipe.", metavar="RECIPE")
    lr: float | None = option(None, help="Rate.", sets="optim.lr", names=("--learning-rate",))
    ema: bool | None = option(None, help="Averaged.", sets="ema.use")
    freeze: tuple[str, ...] = option((), help="Layers.", sets="model.freeze", repeats=True)
    batch: tuple[int, ...] = option((), help="Batches.")
    settings: Assignments = option((), help="Settings.")


TEXT = (
    f"{given('optim.lr', 0.5)} is high. "
    f"Use {use('optim.lr', 0.1)}, {use('optim.momentum', 0.9)} or {use('lr', slot='X')}."
)


@pytest.mark.parametrize(
    ("words", "worded"),
    [
        (["--lr", "0.5"], "--lr 0.5 is high. Use --lr 0.1, --set optim.momentum=0.9 or --lr X."),
        (
            ["--learning-rate=0.5"],
            "--learning-rate 0.5 is high. Use --lr 0.1, --set optim.momentum=0.9 or --lr X.",
        ),
        (["--set", "optim.lr=0.5"], "--set optim.lr=0.5 is high. Use --lr 0.1, --set optim.momentum=0.9 or --lr X."),
        ([], "optim.lr = 0.5 is high. Use --lr 0.1, --set optim.momentum=0.9 or --lr X."),
    ],
)
def test_the_shell_names_what_was_typed(words: list[str], worded: str) -> None:
    assert parse(Small, words, "vernier train")[1].word(TEXT) == worded


def test_python_names_keyword_arguments() -> None:
    words = PythonWords(Small, Small(lr=0.5))
    assert words.word(TEXT) == 'lr=0.5 is high. Use lr=0.1, settings={"optim.momentum": 0.9} or lr=X.'
    assert PythonWords(Small, Small()).word(given("optim.lr", 0.5)) == "optim.lr = 0.5"
    assert PythonWords(None).word(use("out", "a.txt")) == "out=a.txt"
    assert words.word(given("recipe", "x")) == 'recipe="x"'


def test_switches_lists_and_arguments_are_worded() -> None:
    words = ShellWords(Small)
    assert words.word(use("ema", False)) == "--no-ema"
    assert words.word(use("ema", True)) == "--ema"
    assert words.word(given("recipe", "a b")) == "'a b'"
    assert words.word(given("recipe")) == "RECIPE"
    assert words.word(given("batch", [1, 2])) == "--batch 1,2"
    assert words.word(given("settings")) == "--set"


def test_commands_are_commands_at_both_edges() -> None:
    text = command("compare", "A", "B", tolerance="2%", single_runs=True)
    assert ShellWords(None).word(text) == "vernier compare A B --tolerance 2% --single-runs"
    assert PythonWords(None).word(text) == "vernier compare A B --tolerance 2% --single-runs"


def test_a_request_can_be_typed_again() -> None:
    made = Small(recipe="r", lr=0.5, ema=False, freeze=("a", "b"), batch=(1, 2), settings=("optim.lr=1",))
    words = command_line(made)
    assert words[0] == "train"
    assert parse(Small, words[1:], "vernier train")[0] == made
    assert _flag_words(_option("ema"), True) == ["--ema"]


def _option(name: str):  # type: ignore[no-untyped-def]
    from vernier.requests.declaring import option_of

    return option_of(Small, name)
