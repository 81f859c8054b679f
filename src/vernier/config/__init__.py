"""What a run is asked to be: Recipe (what is learned), Machine (where), Checkpoint and Limits (how it is kept).

`settings` has the dataclasses, `text` reads, checks and writes them, `derived` computes what follows from them.
Built-in recipes live in `vernier.recipes`; nothing here knows torch, files of a run, or a device.
"""

from vernier.config.derived import Derived, derive, train_px
from vernier.config.parsing import (
    ALIASES,
    differences,
    digest,
    from_dict,
    load_file,
    override,
    override_from_text,
    parse_value,
    to_dict,
    to_toml,
    tree_differences,
)
from vernier.config.settings import (
    Augment,
    Checkpoint,
    Config,
    Data,
    Detect,
    Ema,
    Eval,
    Limits,
    Loss,
    Machine,
    Model,
    Optim,
    Published,
    Recipe,
    Schedule,
)

__all__ = [
    "ALIASES", "Augment", "Checkpoint", "Config", "Data", "Derived", "Detect", "Ema", "Eval", "Limits", "Loss", "Machine", "Model",
    "Optim", "Published", "Recipe", "Schedule", "derive", "differences", "digest", "from_dict", "load_file", "override",
    "override_from_text", "parse_value", "to_dict", "to_toml", "train_px", "tree_differences",
]  # fmt: skip
