"""What `train` takes."""

from vernier.cli.parser import parse
from vernier.config import described_settings
from vernier.requests.declaring import options_of
from vernier.requests.training import Train


def test_every_option_that_sets_something_names_a_setting() -> None:
    known = {name.removeprefix("recipe.") for name in described_settings()}
    assert {each.sets for each in options_of(Train)} - known == {""}


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
