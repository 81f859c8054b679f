"""Command lines that fit, and what is printed for those that do not."""

import pytest

from vernier.cli.parser import flags_of, parse
from vernier.config.settings import Mode
from vernier.errors import ConfigError
from vernier.requests.declaring import Request, argument, option, request
from vernier.requests.values import Assignments, Duration


@request("tool")
class Tool(Request):
    """Do something.

    Examples:
        tool here --lr 1
    """

    folder: str = argument(help="Folder.", metavar="FOLDER", names=("--weights",))
    others: tuple[str, ...] = argument((), help="Others.", metavar="MORE...", repeats=True)
    lr: float | None = option(None, help="Rate.", names=("--learning-rate",))
    batch: int | None = option(None, help="Batch.", names=("--batch-size",))
    mode: Mode | None = option(None, help="Mode.", sets="machine.mode")
    device: str | None = option(None, help="Device.", sets="machine.device")
    procs: int | None = option(None, help="Processes.")
    expect: tuple[int, int] | None = option(None, help="Counts.")
    time: Duration = option("10m", help="Time.", names=("--minutes",), bare="m")
    smoke: bool = option(False, help="Smoke.")
    ema: bool | None = option(None, help="Averaged.")
    layers: tuple[str, ...] = option((), help="Layers.", repeats=True)
    sizes: tuple[int, ...] = option((), help="Sizes.")
    settings: Assignments = option((), help="Settings.")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "tool needs FOLDER, for example: tool here --lr 1"),
        ("x --lr fast", "--lr takes a number, not 'fast'."),
        ("--lr fast x", "--lr takes a number, not 'fast'."),
        ("x --batch=1.5", "--batch takes a whole number, not '1.5'."),
        ("x --batch-size many", "--batch-size takes a whole number, not 'many'."),
        ("x --lr", "--lr needs a value: --lr X."),
        ("x --lr --smoke", "--lr needs a value: --lr X."),
        ("x --expect 1 b", "--expect takes a whole number, not 'b'."),
        ("x --expect 1", "--expect needs a value: --expect N N."),
        ("x --mode egaer", "--mode egaer is not known. Did you mean eager? Choose from eager, compile, trace."),
        ("x --smok", "Unknown flag --smok. Did you mean --smoke? tool --help lists the flags."),
        ("x --batchsize 3", "Unknown flag --batchsize. Did you mean --batch?"),
        ("x --global-batch 3", "Unknown flag --global-batch. Use --batch N, of each device."),
        ("x --momentum 0.9", "It is a setting: --set optim.momentum=VALUE."),
        ("x --smoke=1", "--smoke takes no value: leave out =1."),
        ("x --zzz", "Unknown flag --zzz. tool --help lists the flags."),
        ("--zzz", "Unknown flag --zzz."),
        ("x --ema --no-ema", "Give --ema or --no-ema, not both."),
        ("x --time 10", "--time 10 is not a time. Write it as 90s, 15m, 3h50m or 1d."),
        ("x --set optim.lr = 0.1", "--set optim.lr=0.1."),
        ("x --set optim.lr= 0.1", "--set optim.lr=0.1."),
        ("x --set optim.lr =0.1", "--set optim.lr=0.1."),
        ("x --device gpu:1", "--device gpu:1: give the kind of device"),
    ],
)
def test_the_message_names_what_was_typed_and_what_works(typed: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(Tool, typed.split(), "tool")
    assert message in str(refused.value)
    assert "None" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("none --learning-rate 1 --mode eager --smoke", {"folder": "none", "lr": 1.0, "mode": "eager", "smoke": True}),
        ("x --lr -1", {"lr": -1.0}),
        ("x --batch_size=64", {"batch": 64}),
        ("x --mode=graph --device gpu", {"mode": "compile", "device": "cuda"}),
        ("x --no-smoke --no-ema", {"smoke": False, "ema": False}),
        ("x y z", {"folder": "x", "others": ("y", "z")}),
        ("--weights w y z", {"folder": "w", "others": ("y", "z")}),
        ("x -- --lr", {"others": ("--lr",)}),
        ("x --expect 1 2", {"expect": (1, 2)}),
        ("x --minutes 5", {"time": "5m"}),
        ("x --time 5s", {"time": "5s"}),
        ("x --layers a --layers b", {"layers": ("a", "b")}),
        ("x --sizes 1,2,4", {"sizes": (1, 2, 4)}),
        ("x --set a.b=1 --set=c_d=--batch", {"settings": ("a.b=1", "c_d=--batch")}),
    ],
)
def test_what_fits_becomes_a_request(typed: str, values: dict[str, object]) -> None:
    made, _ = parse(Tool, typed.split(), "tool")
    assert {name: getattr(made, name) for name in values} == values


def test_switches_have_a_form_to_turn_them_off() -> None:
    assert flags_of(Tool)["--no-ema"].value is False
    assert "--folder" not in flags_of(Tool)
    assert "--set" in flags_of(Tool)
