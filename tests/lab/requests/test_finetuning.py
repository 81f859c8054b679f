"""What `finetune` takes."""

import pytest

from vernier.cli.parser import parse
from vernier.config import described_settings
from vernier.errors import ConfigError
from vernier.lab.requests.finetuning import Finetune
from vernier.requests.declaring import options_of


def test_every_option_that_sets_something_names_a_setting() -> None:
    known = {name.removeprefix("recipe.") for name in described_settings()}
    assert {each.sets for each in options_of(Finetune)} - known == {""}


@pytest.mark.parametrize("words", [["--time", "3m"], ["--minutes", "3"], ["--minutes=3"], ["--minutes", "3m"]])
def test_a_time_has_one_syntax_and_minutes_still_work(words: list[str]) -> None:
    assert parse(Finetune, ["photos", *words], "finetune")[0].time == "3m"


@pytest.mark.parametrize(
    "words", [[], ["photos", "--time", "3"], ["photos", "--time", "0m"], ["photos", "--task", "x"]]
)
def test_what_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(Finetune, words, "finetune")
