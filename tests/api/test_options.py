"""Keyword arguments: the flags of the commands, by the same names."""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vernier.api.options import (
    FinetuneFlags,
    FinetuneOptions,
    TrainFlags,
    TrainOptions,
    assignments,
    check_names,
    command_words,
    plain,
    usual_value,
)
from vernier.cli.model.finetune import finetune
from vernier.cli.model.train import train
from vernier.config import Config, override_from_text
from vernier.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "flags", "options"), [(train, TrainFlags, TrainOptions), (finetune, FinetuneFlags, FinetuneOptions)]
)
def test_the_options_are_the_flags_of_the_command(command: Callable[..., int], flags: type, options: type) -> None:
    of_command = {
        name
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind.name != "POSITIONAL_ONLY"
    }
    assert set(flags.__annotations__) == of_command - {"explain", "json", "quiet", "settings"}
    assert set(options.__annotations__) - set(flags.__annotations__) == {"settings", "quiet"}


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("epoch", "Did you mean epochs"),
        ("batch_size", "It is called global_batch here."),
        ("num_workers", "It is called workers here."),
        ("momentum", 'It is a setting: settings={"optim.momentum": VALUE}.'),
    ],
)
def test_an_unknown_option_suggests_the_right_one(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names("train", [option], TrainOptions.__annotations__)
    assert str(caught.value).startswith(f"train() has no option {option!r}. {hint}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optim.lr", 0.1),
        ("optim.lr", np.float32(0.5)),
        ("seed", np.int64(7)),
        ("data.source", Path('/a b/it\'s [1] = "x"')),
        ("optim.nesterov", True),
        ("model.num_classes", None),
        ("schedule.milestones", [1, 2.5]),
        ("model.freeze", ("layer1", "conv1")),
    ],
)
def test_a_setting_arrives_as_it_was_given(name: str, value: object) -> None:
    (text,) = assignments({name: value})
    config, expected = override_from_text(Config(), text), plain(value)
    setting = config.recipe
    for part in name.split("."):
        setting = getattr(setting, part)
    assert setting == expected


def test_settings_are_a_mapping() -> None:
    assert assignments(None) == ()
    with pytest.raises(ConfigError, match="settings takes names and values such as"):
        assignments(["optim.lr=0.1"])  # type: ignore[arg-type]


def test_paths_are_texts_without_their_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert plain(Path("~/photos")) == plain("~/photos") == "/home/me/photos"
    assert plain("resnet50") == "resnet50"


def test_credentials_go_where_those_of_a_command_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_ADDRESSES", "")
    assert plain("https://me:secret-word@host/set.tar") == "https://host/set.tar"


def test_a_call_becomes_the_command_that_processes_carry_out() -> None:
    flags = {"procs": 2, "smoke": True, "checkpoints": False, "freeze": ("layer1", "conv1"), "global_batch": 8}
    assert command_words("train", "shapes-quick", flags, ["optim.lr=0.1"]) == [
        *("train", "shapes-quick", "--procs", "2", "--smoke", "--no-checkpoints"),
        *("--freeze", "layer1", "--freeze", "conv1", "--global-batch", "8", "--set", "optim.lr=0.1"),
    ]


def test_usual_words_for_devices_are_understood() -> None:
    assert [usual_value("device", word) for word in ("gpu", "gaudi", "cpu")] == ["cuda", "hpu", "cpu"]
    assert usual_value("epochs", 3) == 3
