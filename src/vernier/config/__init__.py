"""The settings of a run: Recipe (what to train), Machine (where), Checkpoint and Limits (what is kept, when to stop).

`settings` has the dataclasses, `parsing` reads and writes them, `checks` the rules between them, `derived` what follows
from them, `migrations` what changed between versions of files. May import `errors` and `frozen` and nothing else of
Vernier; knows no torch, no run directory and no device. Built-in recipes are in `vernier.recipes`.
"""

from .checks import check_config, check_recipe
from .derived import Derived, derive, train_px
from .parsing import (
    RenamedSetting,
    config_from_tree,
    differences,
    digest,
    from_dict,
    load_file,
    override,
    override_from_text,
    parse_share,
    setting_names,
    to_dict,
    to_toml,
    tree_differences,
)
from .settings import (
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
    "Augment",
    "Checkpoint",
    "Config",
    "Data",
    "Derived",
    "Detect",
    "Ema",
    "Eval",
    "Limits",
    "Loss",
    "Machine",
    "Model",
    "Optim",
    "Published",
    "Recipe",
    "RenamedSetting",
    "Schedule",
    "check_config",
    "check_recipe",
    "config_from_tree",
    "derive",
    "differences",
    "digest",
    "from_dict",
    "load_file",
    "override",
    "override_from_text",
    "parse_share",
    "setting_names",
    "to_dict",
    "to_toml",
    "train_px",
    "tree_differences",
]
