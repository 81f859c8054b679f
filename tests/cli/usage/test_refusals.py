"""What is said about a command line that cannot be parsed."""

from typing import Annotated

import pytest
from tyro.conf import arg

from vernier.cli import run
from vernier.cli.flags import ModeFlag, OptionalFloat, OptionalInt, SetFlag, Switch
from vernier.errors import ConfigError


def _command(
    folder: Annotated[str, arg(metavar="FOLDER")],
    /,
    *,
    lr: OptionalFloat = None,
    batch: OptionalInt = None,
    mode: ModeFlag = None,
    expect: tuple[int, int] = (1, 2),
    smoke: Switch = False,
    settings: SetFlag = (),
) -> int:
    """Do something.

    Examples:
        tool here --lr 1
    """
    return 7


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "tool needs FOLDER, for example: tool here --lr 1"),
        ("x y", "'y' is one argument too many. tool --help shows what it takes."),
        ("x --lr fast", "--lr takes a number, not 'fast'."),
        ("--lr fast x", "--lr takes a number, not 'fast'."),
        ("x --batch=1.5", "--batch takes a whole number, not '1.5'."),
        ("x --batch-size many", "--batch-size takes a whole number, not 'many'."),
        ("x --lr", "--lr needs a value: --lr X."),
        ("x --expect 1 b", "--expect takes 2 whole numbers, not '1 b'."),
        ("x --mode egaer", "--mode 'egaer' is not known. Did you mean eager? Choose from eager, compile, trace"),
        ("x --smok", "Unknown flag --smok. Did you mean --smoke? tool --help lists the flags."),
        ("x --batchsize 3", "Unknown flag --batchsize. Did you mean --batch?"),
        ("x --global-batch 3", "Unknown flag --global-batch. Use --batch, the batch per device."),
        ("x --momentum 0.9", "It is a setting: --set optim.momentum=VALUE."),
        ("x --smoke=1", "--smoke takes no value: leave out =1."),
        ("x --zzz", "Unknown flag --zzz. tool --help lists the flags."),
        ("--zzz", "Unknown flag --zzz."),
    ],
)
def test_the_message_names_what_was_typed_and_what_works(typed: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(_command, typed.split(), "tool")
    assert message in str(refused.value)
    assert "None" not in str(refused.value)


def test_what_fits_is_run() -> None:
    assert run(_command, ["none", "--learning-rate", "1", "--mode", "eager", "--smoke"], "tool") == 7
