"""Warnings about configurations that are valid but probably a mistake, given before a run starts."""

from vernier.references import given, use

from .derived import count_virtual_shards, train_px
from .settings import Config, Recipe

LONG_WARMUP = 1 / 3
LATE_END = 1.1
"""MLPerf's submissions end the decay an epoch after the training."""
_HIGH_RATE = 100
"""LARS at 32,768 images uses 29."""
FEW_IMAGES = 8
"""Batch-norm statistics over fewer images than this are noisy."""
SIZE_RATIOS = (0.8, 1.5)
"""Evaluation images up to this much smaller or larger than training images are usual."""


def config_warnings(config: Config, *, detector: bool) -> tuple[str, ...]:
    """Warnings about these settings, one sentence each."""
    recipe = config.recipe
    return (
        *_schedule_warnings(recipe),
        *_size_warnings(recipe, detector),
        *_rate_warnings(recipe),
        *_ending_warnings(config),
        *_shard_warnings(config),
    )


def _schedule_warnings(recipe: Recipe) -> list[str]:
    schedule, lines = recipe.schedule, []
    if schedule.warmup_epochs > LONG_WARMUP * schedule.epochs:
        lines.append(
            f"the warm-up takes {schedule.warmup_epochs:g} of {schedule.epochs:g} epochs. A shorter one: "
            f"{use('schedule.warmup_epochs', float(f'{schedule.epochs / 10:.2g}'))}"
        )
    if schedule.kind in ("step", "list"):
        late = [m for m in schedule.milestones if m >= schedule.epochs]
        if late:
            which = "no milestone is" if len(late) == len(schedule.milestones) else "not all milestones are"
            lines.append(
                f"{which} reached in {schedule.epochs:g} epochs (milestones at "
                f"{', '.join(f'{m:g}' for m in schedule.milestones)}): the rate drops "
                f"{len(schedule.milestones) - len(late)} times instead of {len(schedule.milestones)}. "
                f"{use('epochs')} scales them, {use('schedule.milestones', slot='[...]')} sets them"
            )
    decay = schedule.decay_epochs
    if schedule.kind == "mlperf" and decay is not None and decay > LATE_END * schedule.epochs:
        lines.append(
            f"the rate would reach its end at epoch {decay:g}, and training ends at {schedule.epochs:g}. "
            f"{use('epochs')} scales both, {use('schedule.decay_epochs', slot='N')} sets one"
        )
    return lines


def _size_warnings(recipe: Recipe, detector: bool) -> list[str]:
    data, augment, lines = recipe.data, recipe.augment, []
    reached = augment.phase_epochs[-1] if augment.phase_epochs else augment.ramp_epochs[1]
    if augment.start_px is not None and reached >= recipe.schedule.epochs:
        last = train_px(data, augment, max(0, round(recipe.schedule.epochs) - 1))
        if last < data.image_px:
            kind = "phase" if augment.phase_epochs else "ramp"
            what = "never leaves" if last == augment.start_px else f"reaches {last}, having started at"
            lines.append(
                f"progressive resizing {what} {augment.start_px} px and does not reach "
                f"{given('data.image_px', data.image_px)} in {recipe.schedule.epochs:g} epochs. {use('epochs')} scales "
                f"its epochs, {use(f'augment.{kind}_epochs', slot='[...]')} sets them"
            )
    low, high = SIZE_RATIOS
    if not detector and not low <= data.eval_px / data.image_px <= high:
        lines.append(
            f"training images have {data.image_px} px and evaluation images {data.eval_px} px. "
            f"The same size: {use('data.eval_px', data.image_px)}"
        )
    return lines


def _rate_warnings(recipe: Recipe) -> list[str]:
    optim, schedule = recipe.optim, recipe.schedule
    if optim.lr > _HIGH_RATE:
        return [f"{given('optim.lr', optim.lr)} is far above every published rate: training will diverge"]
    if schedule.kind in ("cosine", "linear", "polynomial", "mlperf") and schedule.end_lr >= optim.lr:
        return [
            f"the learning rate rises from {optim.lr:g} to {given('schedule.end_lr', schedule.end_lr)} instead of "
            f"falling. Lower it: {use('schedule.end_lr', 0)}"
        ]
    return []


def _ending_warnings(config: Config) -> list[str]:
    """Two settings that end a run, of which one has no effect."""
    recipe, most, lines = config.recipe, config.limits.max_steps, []
    if recipe.eval.patience is not None and not (recipe.eval.every_epochs or recipe.eval.at_epochs):
        lines.append(f"{given('eval.patience', recipe.eval.patience)} has no effect: this run is not evaluated")
    if most is not None and recipe.schedule.steps is not None and most < recipe.schedule.steps:
        lines.append(
            f"{given('limits.max_steps', most)} comes first: {most} of {recipe.schedule.steps} steps are trained"
        )
    return lines


def _shard_warnings(config: Config) -> list[str]:
    """Exact reduction takes batch-norm statistics over the images of a virtual shard."""
    if config.machine.reduction != "exact":
        return []
    shards = count_virtual_shards(config.recipe)
    images = config.recipe.global_batch // shards
    if images >= FEW_IMAGES or shards == 1:
        return []
    return [
        f"each of {shards} virtual shards has {images} images, and batch norm takes its statistics over them. A larger "
        f"{use('global_batch')} or a smaller {use('virtual_shards')} gives it more"
    ]
