"""Kinds of command-line flags that several commands share, and applying flags to a configuration.

What commands print is in `output`; starting processes is in `launching`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from vernier import recipes
from vernier.config import Config, override
from vernier.config.settings import Engine, Mode, OnDivergence, Precision
from vernier.errors import ConfigError


def check_shard_cache(data: str, gigabytes: float | None) -> None:
    """Raise ConfigError for --shard-cache-gb out of range, or with data that is not at an address."""
    if gigabytes is None:
        return
    if "://" not in data:
        raise ConfigError(f"--shard-cache-gb is for data at an address such as https://..., and {data} is not one.")
    try:
        override(Config(), "machine.shard_cache_gb", gigabytes)
    except ConfigError as error:
        raise ConfigError(f"--shard-cache-gb {gigabytes:g}: {error}") from None


def optional(metavar: str, **options: Any) -> Any:
    """A flag that may be left out: help shows the metavar and no default. `options` are those of tyro's `arg`."""
    return arg(**{"metavar": metavar, "help_behavior_hint": "", **options})


def repeatable(name: str, metavar: str, text: str) -> Any:
    """A flag that may be given several times."""
    return optional(metavar, name=name, help=f"{text} Repeatable.")


Switch = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
"""A flag without a value that is off unless given. One that is on by default is a plain bool, with its --no- form."""
OptionalText = Annotated[str | None, optional("TEXT")]
NetworkFlag = Annotated[str | None, optional("NETWORK")]
OptionalFile = Annotated[str | None, optional("FILE")]
OptionalDir = Annotated[str | None, optional("DIR")]
OptionalInt = Annotated[int | None, optional("N")]
OptionalFloat = Annotated[float | None, optional("X")]
IntFlag = Annotated[int, arg(metavar="N")]
RecipeName = Annotated[Positional[str | None], optional("[RECIPE]", help_behavior_hint="(default: shapes-quick)")]
RunPath = Annotated[Positional[str], arg(metavar="RUN|CHECKPOINT")]
WhichFlag = Annotated[str, arg(metavar="latest|best|STEP")]
DEVICE_NAMES = "auto|cpu|cuda|hpu|mps|xpu|..."
"""For the help; packages can add devices, so any name is read, and `devices.resolve` refuses those it does not know."""
DeviceFlag = Annotated[str | None, optional(DEVICE_NAMES)]
PrecisionFlag = Annotated[Precision | None, optional("fp32|tf32|bf16|fp16")]
ModeFlag = Annotated[Mode | None, optional("eager|compile|trace")]
EngineFlag = Annotated[
    Engine | None,
    optional(
        "torch|onnxruntime|openvino|auto",
        help="What runs the network, on the CPU. Another engine than torch is first checked against it on the images; "
        "auto measures those that are installed for some seconds each, takes the fastest and says so. Default: torch.",
    ),
]
Int8Flag = Annotated[
    Switch,
    arg(
        help="Run in INT8 instead of fp32, calibrated on some of these images (at least 30); the output says what that "
        "costs and gains on others. Needs --engine onnxruntime or auto."
    ),
]
MachineFlag = Annotated[
    str | None,
    optional(
        "FILE",
        help="Settings of the machine from a file: one that `vernier tune` wrote, or any .toml file with a table "
        "[machine]. Flags and --set win over it.",
    ),
]
DivergenceFlag = Annotated[OnDivergence | None, optional("stop|rollback")]
DataFlag = Annotated[str | None, optional("NAME|PATH")]
ShardCacheFlag = Annotated[
    float | None,
    optional(
        "GB",
        help="Data at an address (https://, s3://, ...): largest size of the local cache, as machine.shard_cache_gb; "
        "0: none. Default: $VERNIER_SHARD_CACHE_GB, or 50.",
    ),
]
JsonFlag = Annotated[
    Switch, arg(name="json", help="Print one JSON document on standard output and nothing else there.")
]
QuietFlag = Annotated[Switch, arg(aliases=["-q"], help="Print warnings, errors and the result, but no progress.")]
SetFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    repeatable("set", "NAME=VALUE", "Change any setting, e.g. optim.lr=0.05."),
]
TrackFlag = Annotated[
    UseAppendAction[tuple[Literal["wandb", "mlflow"], ...]],
    repeatable("track", "wandb|mlflow", "Also log to Weights & Biases or MLflow."),
]
EmaFlag = Annotated[Switch, arg(help="Use the averaged weights (default if the checkpoint has them).")]
NoEmaFlag = Annotated[Switch, arg(help="Use the raw weights, not the averaged ones.")]
FreezeFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    repeatable(
        "freeze",
        "PREFIX",
        "Do not train layers whose names start with this, e.g. layer1; backbone: train the classifier only.",
    ),
]


def choose_averaged(ema: bool, no_ema: bool) -> bool | None:
    """Turn --ema and --no-ema into one choice; None: averaged weights if the checkpoint has them."""
    if ema and no_ema:
        raise ConfigError("Give --ema or --no-ema, not both.")
    return True if ema else False if no_ema else None


def apply_flags(config: Config, flags: Mapping[str, object], settings: tuple[str, ...]) -> Config:
    """Change the configuration by the named flags (None: not given), then by the `--set` assignments."""
    return recipes.change(config, flags, settings).config
