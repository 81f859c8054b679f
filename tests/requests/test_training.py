"""What `train` and `finetune` take."""

import pytest

from vernier.cli.parser import parse
from vernier.config import described_settings
from vernier.errors import ConfigError
from vernier.requests.declaring import options_of
from vernier.requests.training import Finetune, Train


@pytest.mark.parametrize("cls", [Train, Finetune])
def test_every_option_that_sets_something_names_a_setting(cls: type[Train] | type[Finetune]) -> None:
    known = {name.removeprefix("recipe.") for name in described_settings()}
    assert {each.declared.sets for each in options_of(cls)} - known == {""}


def test_names_of_other_programs_are_understood() -> None:
    words = "mine.toml --learning-rate 0.1 --batch-size 64 --arch resnet18 --dataset x --num-steps 5 --print-freq 10"
    request, shell = parse(Train, [*words.split(), "--gpus", "2", "--dry-run", "--raport-file", "r.json"], "train")
    assert request == Train(
        recipe="mine.toml",
        lr=0.1,
        global_batch=64,
        model="resnet18",
        data="x",
        steps=5,
        print_every=10,
        procs=2,
        explain=True,
        raport="r.json",
    )
    assert shell.typed["global_batch"] == "--batch-size"


def test_zero_is_a_value_and_what_was_not_given_changes_nothing() -> None:
    assert Train().changes() == {}
    assert Train(workers=0, seed=0, checkpoints=False).changes() == {"machine.workers": 0, "seed": 0}


def test_lists_are_given_by_repeating_the_flag() -> None:
    request, _ = parse(Train, ["--freeze", "layer1", "--freeze", "layer2", "--track", "wandb"], "train")
    assert (request.freeze, request.track) == (("layer1", "layer2"), ("wandb",))


def test_a_request_crosses_to_another_process_unchanged() -> None:
    request = Train(recipe="mine.toml", freeze=("layer1",), max_time="auto", tensorboard=False, lr=0.1)
    assert Train.from_json(request.to_json()) == request


@pytest.mark.parametrize("words", [["--time", "3m"], ["--minutes", "3"], ["--minutes=3"], ["--minutes", "3m"]])
def test_a_time_has_one_syntax_and_minutes_still_work(words: list[str]) -> None:
    assert parse(Finetune, ["photos", *words], "finetune")[0].time == "3m"


@pytest.mark.parametrize(
    "words", [[], ["photos", "--time", "3"], ["photos", "--time", "0m"], ["photos", "--task", "x"]]
)
def test_what_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(Finetune, words, "finetune")
