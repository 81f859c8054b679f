"""Flags of other programs: every replacement is a command line that is understood."""

import re

import pytest

from vernier.cli import _find_command
from vernier.cli.parser import flags_of, parse
from vernier.compat.flag_hints import HINTS
from vernier.config import Config, override_from_text
from vernier.errors import ConfigError
from vernier.requests.registry import find
from vernier.requests.training import Train

VALUES = {"N": "8", "X": "0.5", "FILE": "f.pth", "DIR": "d", "PATH": "p", "RUN": "r", "PREFIX": "layer1", "A:B": "2:3"}
VALUES |= {"TIME": "10m", "NAME": "cpu"}


def _words(replacement: str) -> list[str]:
    """The command line of a replacement, without the words that explain it."""
    words = re.split(r", |: ", replacement)[0].split()
    return [re.sub(r"(?<![a-zA-Z-])(N|X|A:B|[A-Z]{3,})(?![a-zA-Z])", lambda m: VALUES[m[1]], word) for word in words]


@pytest.mark.parametrize("flag", HINTS)
def test_a_replacement_is_understood(flag: str) -> None:
    replacement = HINTS[flag]
    if replacement.startswith("nothing: "):
        assert len(replacement) > 30, "the reason"
        return
    words = _words(replacement)
    command, rest = _find_command(words[1:]) if words[0] == "vernier" else (flag.split(" ")[0], words)
    cls = Train if command.startswith("-") else find(command)
    assert cls is not None
    if command == "predict":
        rest = ["run", "photo.jpg", *rest]
    if command == "submit":
        rest = ["resnet50", "--machine", "m.toml", *rest]
    if flag == "--global-batch":
        cls = find("bench train")
        assert cls is not None
    request, _ = parse(cls, rest, "vernier")
    if settings := getattr(request, "settings", ()):
        override_from_text(Config(), *settings)


def test_no_hint_is_for_a_flag_that_training_has() -> None:
    assert {flag for flag in HINTS if flag in flags_of(Train)} == {"--global-batch"}
    assert len(HINTS) >= 100


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--num_train_steps=2", "Unknown flag --num_train_steps. Use --max-steps N."),
        ("--prof", "Use --max-steps N."),
        ("--workspace", "Use --out DIR."),
        ("--evaluate", "Use vernier eval RUN."),
        ("-b", "Use --global-batch N, of all devices together."),
        ("-p", "Use --print-every N."),
        ("-c", "Use --set model.init=fan-in."),
        ("--data-backend", "Use --set machine.backend=dali-cpu, or native."),
        ("--static-loss-scale", "Use --set machine.loss_scaling=static --set machine.loss_scale=X."),
        ("--bn-weight-decay", "Use --set optim.decay_rule=all."),
        ("--run-lazy-mode", "Use --mode eager, or compile:"),
        ("--gather-checkpoints", "Use --set checkpoint.keep_last=N."),
        ("--vflip", "There is no such flag here: images are mirrored from left to right only."),
    ],
)
def test_an_old_flag_leads_to_the_new_one(typed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(Train, [typed], "vernier train")
