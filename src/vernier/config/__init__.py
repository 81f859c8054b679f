"""The settings of a run: Recipe (what to train), Machine (where), Checkpoint and Limits (what is kept, when to stop).

`settings` has the dataclasses, `parsing` reads and writes them, `machine_file` those of a machine file, `durations`
reads times, `changes` applies what a person changes, `checks` has the rules between them, `warnings` what is allowed
and unusual, `derived` what follows from them, `migrations` what changed between versions of files. Imports only leaf
modules of Vernier such as `errors`, `references` and `plugins`; knows no torch, no run directory, no device and no
flag. Optimizers are in `vernier.optim.kinds`, found by name; built-in recipes are in `vernier.recipes`.
"""

from .changes import MACHINE_FILE, Changed, apply_changes, check_batch_rule
from .checks import check_config, check_recipe, check_reduction, refuse_training_settings
from .derived import (
    DEFAULT_EXACT_THREADS,
    Derived,
    count_virtual_shards,
    derive,
    describe_lr,
    describe_target,
    train_px,
)
from .durations import UNTIL_JOB_ENDS, parse_duration
from .machine_file import (
    MachineFile,
    Tuned,
    Work,
    describe_elsewhere,
    machine_toml,
    read_machine_file,
    refuse_other_work,
)
from .parsing import (
    assignment,
    config_from_tree,
    described_settings,
    differences,
    digest,
    from_dict,
    load_file,
    override,
    override_from_text,
    setting_name,
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
    optimizers,
    option,
)
from .warnings import config_warnings

__all__ = [
    "DEFAULT_EXACT_THREADS",
    "MACHINE_FILE",
    "UNTIL_JOB_ENDS",
    "Augment",
    "Changed",
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
    "MachineFile",
    "Model",
    "Optim",
    "Published",
    "Recipe",
    "Schedule",
    "Tuned",
    "Work",
    "apply_changes",
    "assignment",
    "check_batch_rule",
    "check_config",
    "check_recipe",
    "check_reduction",
    "config_from_tree",
    "config_warnings",
    "count_virtual_shards",
    "derive",
    "describe_elsewhere",
    "describe_lr",
    "describe_target",
    "described_settings",
    "differences",
    "digest",
    "from_dict",
    "load_file",
    "machine_toml",
    "optimizers",
    "option",
    "override",
    "override_from_text",
    "parse_duration",
    "read_machine_file",
    "refuse_other_work",
    "refuse_training_settings",
    "setting_name",
    "to_dict",
    "to_toml",
    "train_px",
    "tree_differences",
]
