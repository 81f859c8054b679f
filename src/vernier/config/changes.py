"""Changes that a person makes to a configuration, and the settings that follow from them.

An option means what it says: `epochs` changes the length of the whole schedule, `lr` is the learning rate that is used,
and another image size moves the evaluation with it. A setting given by its name changes that one and nothing else.
Every change that follows is described in a note.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given, use

from .machine_file import MachineFile
from .parsing import assignment, override, override_from_text, setting_name
from .settings import BUILT_IN_LOSSES, Config, Recipe, short_side_of

MACHINE_FILE = "machine file"
"""The key of a MachineFile among options."""
_SIZE_STEP_PX = 8


@frozen
class Changed:
    """A configuration after changes, notes about what followed from them, and the settings the person named."""

    config: Config
    notes: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


def apply_changes(config: Config, options: Mapping[str, object], settings: Sequence[str]) -> Changed:
    """Change the configuration by options (setting -> value; None: not given), then by assignments NAME=VALUE.

    A machine file, under MACHINE_FILE, comes before both. Of the options, `schedule.epochs` scales the schedule and
    `optim.lr` is the peak learning rate at the batch that is used.
    """
    start, notes = config, list[str]()
    values = {path: value for path, value in options.items() if value is not None}
    file = values.pop(MACHINE_FILE, None)
    named = {setting_name(path) for path in values}
    # Also those of assignments: what a person named must not follow from something else.
    named |= {setting_name(assignment.partition("=")[0].strip()) for assignment in settings}
    # First, so that everything a person typed wins over the file.
    if isinstance(file, MachineFile):
        config, notes = file.apply(config, named)
        named |= {f"machine.{name}" for name in file.settings}
    if "optim.name" in values:
        # At once with what is assigned: another optimizer may need optim.nesterov=false.
        settings = (assignment("optim.name", values.pop("optim.name")), *settings)
    for path, value in values.items():
        # An option scales the schedule; the assignment schedule.epochs=3 changes that number alone.
        if path == "schedule.epochs" and isinstance(value, int | float):
            config, note = _with_epochs(config, float(value))
            notes += note
        else:
            config = override(config, path, value)
    config = override_from_text(config, *settings)
    loss = config.recipe.loss
    if loss.kind not in BUILT_IN_LOSSES and loss.label_smoothing and "recipe.loss.label_smoothing" not in named:
        config = override(config, "loss.label_smoothing", 0.0)
        notes.append(f"{given('loss.kind', loss.kind)} gets class numbers: label smoothing of the recipe is omitted")
    # After all changes: it compares the sizes with those of the recipe as published.
    config, note = _with_eval_size(config, start, named)
    # Last: the scale depends on the batch, which an assignment may have changed.
    if "optim.lr" in values:
        config = _with_peak_lr(config)
    return Changed(config=config, notes=(*notes, *note), named=frozenset(named))


def _with_epochs(config: Config, epochs: float) -> tuple[Config, list[str]]:
    """Change the length of a run: milestones, warm-up, decay and resizing keep their fraction of it."""
    before = config.recipe
    config = override(config, "schedule.epochs", epochs)
    factor = epochs / before.schedule.epochs
    # Rounding below would change milestones such as 1/3, and with them the digest of an unchanged recipe.
    if factor == 1:
        return config, []

    def scaled(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(round(value * factor, 4) for value in values)

    old, augment = config.recipe.schedule, before.augment
    schedule = replace(
        old,
        warmup_epochs=round(old.warmup_epochs * factor, 4),
        head_epochs=round(old.head_epochs * factor, 4),
        milestones=scaled(old.milestones),
        decay_epochs=None if old.decay_epochs is None else round(old.decay_epochs * factor, 4),
    )
    begin, end = scaled(augment.ramp_epochs)
    recipe = replace(
        config.recipe,
        schedule=schedule,
        augment=replace(augment, ramp_epochs=(begin, end), phase_epochs=scaled(augment.phase_epochs)),
        ema=replace(before.ema, copy_epochs=round(before.ema.copy_epochs * factor, 4)),
        eval=replace(before.eval, at_epochs=scaled(before.eval.at_epochs)),
    )
    parts = []
    if schedule.warmup_epochs:
        parts.append(f"warm-up {schedule.warmup_epochs:.4g}")
    if schedule.head_epochs:
        parts.append(f"head alone {schedule.head_epochs:.4g}")
    if schedule.kind in ("step", "list") and schedule.milestones:
        parts.append(f"milestones {', '.join(f'{m:.4g}' for m in schedule.milestones)}")
    if schedule.kind == "mlperf" and schedule.decay_epochs:
        parts.append(f"decay to {schedule.decay_epochs:.4g}")
    if augment.phase_epochs:
        parts.append(f"image size grows at {', '.join(f'{e:.4g}' for e in recipe.augment.phase_epochs)}")
    elif augment.start_px is not None:
        parts.append(f"image size grows from epoch {begin:.4g} to {end:.4g}")
    if before.eval.at_epochs:
        parts.append(f"evaluations at {', '.join(f'{e:.4g}' for e in recipe.eval.at_epochs)}")
    note = f"{given('schedule.epochs', epochs)} instead of {before.schedule.epochs:g}: the schedule is scaled with it"
    return replace(config, recipe=recipe), [f"{note} ({'; '.join(parts)})" if parts else note]


def _with_peak_lr(config: Config) -> Config:
    """Take optim.lr as the rate that is used, whatever the batch."""
    recipe = config.recipe
    scale = 1.0 if recipe.optim.lr_batch is None else recipe.global_batch / recipe.optim.lr_batch
    # The last rate is given per lr_batch, too: without it, both rates must be those that are used.
    schedule = replace(recipe.schedule, end_lr=recipe.schedule.end_lr * scale)
    return replace(config, recipe=replace(recipe, schedule=schedule, optim=replace(recipe.optim, lr_batch=None)))


def check_batch_rule(recipe: Recipe, base: Recipe, named: frozenset[str]) -> None:
    """Refuse another global batch if no rule gives the learning rate for it, unless a rate is given."""
    optim, batch, own = recipe.optim, recipe.global_batch, base.global_batch
    rate_given = {"recipe.optim.lr", "recipe.optim.lr_batch"} & named
    if batch == own or optim.lr_batch is not None or optim.linear_scaling or rate_given:
        return
    linear, root = optim.lr * batch / own, optim.lr * math.sqrt(batch / own)
    raise ConfigError(
        f"{base.name} uses {optim.name.upper()} with a learning rate of {optim.lr:g} for a global batch of {own:,}, "
        f"and there is no general rule for {given('global_batch', batch)}. Give one: scaled by the square root of the "
        f"batch {use('optim.lr', float(f'{root:.3g}'))}, in proportion {use('optim.lr', float(f'{linear:.3g}'))}."
    )


def _with_eval_size(config: Config, start: Config, named: set[str]) -> tuple[Config, list[str]]:
    """Scale the evaluation image size with the training image size, unless it was set."""
    data, was = config.recipe.data, start.recipe.data
    eval_px, short_side = data.eval_px, data.eval_short_side_px
    if data.image_px != was.image_px and "recipe.data.eval_px" not in named:
        eval_px = _scaled_px(was.eval_px, data.image_px, was.image_px)
    if eval_px != was.eval_px and "recipe.data.eval_short_side_px" not in named:
        # A recipe with the usual margin keeps the usual rule; another margin is kept in proportion.
        usual = was.eval_short_side_px == short_side_of(was.eval_px)
        in_proportion = max(eval_px, round(was.eval_short_side_px * eval_px / was.eval_px))
        short_side = short_side_of(eval_px) if usual else in_proportion
    if (eval_px, short_side) == (data.eval_px, data.eval_short_side_px):
        return config, []
    moved = eval_px != data.eval_px
    data = replace(data, eval_px=eval_px, eval_short_side_px=short_side)
    size = given("data.image_px", data.image_px)
    note = f"evaluation follows {size}: {eval_px} px from a short side of {short_side}"
    return replace(config, recipe=replace(config.recipe, data=data)), [note] if moved else []


def _scaled_px(eval_px: int, image_px: int, own_image_px: int) -> int:
    """The evaluation image size, in the recipe's proportion to the training image size."""
    if eval_px == own_image_px:
        return image_px
    return max(_SIZE_STEP_PX, round(eval_px * image_px / own_image_px / _SIZE_STEP_PX) * _SIZE_STEP_PX)
