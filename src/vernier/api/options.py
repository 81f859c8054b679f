"""Keyword arguments: their names and types, what people write out of habit, and their way into settings or a command.

They are the flags of the commands in snake case, where they are explained: `vernier train --help`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from vernier.addresses import take_credentials
from vernier.config import assignment, setting_names
from vernier.config.settings import Mode, OnDivergence, Precision
from vernier.errors import ConfigError, did_you_mean

T = TypeVar("T")
StrPath = str | os.PathLike[str]
Settings = Mapping[str, object]
"""Names and values of settings: `{"optim.lr": 0.1}`, as `--set optim.lr=0.1` gives them."""

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("batch", "batch_size", "batches", "device_batch"), ("batch", "global_batch")),
    "learning_rate": ("lr",),
    "gpus": ("procs",),
    "nproc": ("procs",),
    "nproc_per_node": ("procs",),
    "num_workers": ("workers",),
    "precisions": ("precision",),
    "modes": ("mode",),
    "dataset": ("data",),
    "arch": ("model",),
    "output": ("out",),
    "raport_file": ("raport",),
    "print_freq": ("print_every",),
    "num_steps": ("steps",),
}
"""Names that people write out of habit, and the options they can stand for: the first that there is."""

OTHER_VALUES = {
    ("device", "gpu"): "cuda",
    ("device", "rocm"): "cuda",
    ("device", "gaudi"): "hpu",
    ("mode", "graph"): "compile",
}
"""Other words for a value of an option."""


class TrainFlags(TypedDict, total=False):
    """What `vernier train` takes as flags."""

    data: StrPath | None
    out: StrPath
    machine: StrPath | None
    device: str | None
    procs: int | None
    precision: Precision | None
    allow_slow: bool
    mode: Mode | None
    deterministic: bool
    model: str | None
    global_batch: int | None
    epochs: float | None
    lr: float | None
    seed: int | None
    weights: StrPath | None
    backbone_weights: StrPath | None
    reset_head: bool
    freeze: str | Sequence[str]
    workers: int | None
    max_bad_images: int | str | None
    max_steps: int | None
    steps: int | None
    max_eval_steps: int | None
    max_time: str | None
    train_only: bool
    train_accuracy: bool
    print_every: int | None
    smoke: bool
    checkpoints: bool
    on_divergence: OnDivergence | None
    tensorboard: bool
    track: Literal["wandb", "mlflow"] | Sequence[Literal["wandb", "mlflow"]]
    raport: StrPath | None
    dllogger: StrPath | None
    profile_steps: str | None
    resume: StrPath | None
    config: StrPath | None


class FinetuneFlags(TypedDict, total=False):
    """What `vernier finetune` takes as flags."""

    weights: StrPath | None
    task: Literal["auto", "classes", "boxes"]
    minutes: float
    out: StrPath
    model: str | None
    image_px: int | None
    global_batch: int | None
    epochs: float | None
    lr: float | None
    freeze: str | Sequence[str]
    seed: int | None
    machine: StrPath | None
    device: str | None
    procs: int | None
    precision: Precision | None
    workers: int | None
    max_time: str | None
    tensorboard: bool
    resume: StrPath | None


class FinetuneOptions(FinetuneFlags, total=False):
    """The keyword arguments of `finetune`. `settings` reaches every setting; `quiet` prints warnings only."""

    settings: Settings
    quiet: bool


class TrainOptions(TrainFlags, total=False):
    """The keyword arguments of `train`. `settings` reaches every setting; `quiet` prints warnings only."""

    settings: Settings
    quiet: bool


def check_names(function: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for the first option that the function does not have, with the name that was probably meant."""
    names = list(known)
    for option in options:
        if option in names:
            continue
        if own := next((name for name in OTHER_NAMES.get(option, ()) if name in names), None):
            hint = f"It is called {own} here."
        elif "settings" in names and (settings := _settings_called(option)):
            hint = "It is a setting: " + " or ".join(f'settings={{"{name}": VALUE}}' for name in settings[:2]) + "."
        else:
            hint = did_you_mean(option, names)
        raise ConfigError(f"{function}() has no option {option!r}. {hint}")


def _settings_called(name: str) -> list[str]:
    return [setting for setting in setting_names() if setting.rpartition(".")[2] == name]


def plain(value: Any) -> Any:
    """A value as settings take it: paths as text without `~` and credentials, numbers of NumPy as Python's."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        (value,) = take_credentials([os.path.expanduser(value) if value.startswith("~") else value])  # noqa: PTH111
        return value
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def usual_value(option: str, value: T) -> T | str:
    """The value of an option by Vernier's own word for it."""
    return OTHER_VALUES.get((option, value), value) if isinstance(value, str) else value


def signature_with(first: Parameter, options: type, returns: type) -> Signature:
    """The signature by which a notebook offers a function's options by name; type checkers read `options` itself."""
    named = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=hint)
        for name, hint in options.__annotations__.items()
    )
    return Signature([first, *named], return_annotation=returns)


def given_flags(options: Mapping[str, object]) -> dict[str, Any]:
    """The options that were given, by Vernier's own words for their values."""
    given = {name: plain(value) for name, value in options.items() if value is not None}
    return {name: usual_value(name, value) for name, value in given.items()}


def assignments(settings: Settings | None) -> tuple[str, ...]:
    """Settings as the assignments that `--set` takes. Raises ConfigError for what is no mapping of names."""
    if settings is None:
        return ()
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise ConfigError(f'settings takes names and values such as {{"optim.lr": 0.1}}, not {settings!r}.')
    return tuple(assignment(name, plain(value)) for name, value in settings.items())


def to_path(value: StrPath, what: str) -> Path:
    """A path with its `~` expanded. Raises ConfigError for what is no path."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{what} takes a path, not {value!r}.")
    return Path(value).expanduser()


def texts(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """One text or several as a tuple."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def command_words(
    command: str, argument: str | None, flags: Mapping[str, object], settings: Sequence[str]
) -> list[str]:
    """The command line of a call, for the processes that carry it out."""
    words = [command, *([] if argument is None else [argument])]
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is False:
            words.append(flag.replace("--", "--no-", 1))
        elif value is not None:
            words += [
                word for text in texts(value if isinstance(value, tuple) else str(value)) for word in (flag, text)
            ]
    return [*words, *(word for setting in settings for word in ("--set", setting))]
