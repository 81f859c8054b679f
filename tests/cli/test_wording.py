"""Words of the command line; `tests/requests/test_wording.py` has those that depend on what was typed."""

from vernier.cli.wording import ShellWords
from vernier.compat.preparing.requests import PrepareData
from vernier.lab.requests.benchmarks import BenchTrain
from vernier.lab.requests.comparing import Convert
from vernier.references import given, use
from vernier.requests.training import Train


def test_values_are_quoted_as_a_shell_needs_them() -> None:
    words = ShellWords(Convert)
    assert words.word(use("out", "my file")) == "--out 'my file'"
    assert words.word(use("out", slot="FILE")) == "--out FILE"
    assert words.word(given("to")) == "--to"
    assert words.word(use("optim.lr", 0.1)) == "optim.lr=0.1", "a command without --set"


def test_values_of_several_words_are_those_that_were_typed() -> None:
    words = ShellWords(PrepareData)
    assert words.word(given("files", (2, 1))) == "--files 2 1"
    assert words.word(given("paths", ("a b", "c"))) == "'a b' c"
    assert ShellWords(Train).word(given("freeze", ("layer1", "bn1"))) == "--freeze layer1 --freeze bn1"
    assert ShellWords(BenchTrain).word(given("batch", (1, 2))) == "--batch 1,2"
