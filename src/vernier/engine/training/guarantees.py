"""Code of users in a run: what is recorded about it, and which guarantees hold; that it and the data stay the same.

What Vernier draws and orders is a function of the seed whatever code is called; the arithmetic of outside code is not
known, so what depends on it is named instead of promised. `vernier check` compares bits.
"""

from vernier.config import Recipe, own_references
from vernier.data.sources.content import content_of, describe_change
from vernier.errors import ConfigError, RunFailed
from vernier.own_code import OwnCode, OwnPart, line_of, raised
from vernier.records.run import Progress
from vernier.references import command, given, use
from vernier.store import RunDir

from .setup import Job


def describe_code(recipe: Recipe) -> tuple[OwnCode, ...]:
    """Where the code outside of Vernier that a recipe names comes from."""
    return tuple(OwnPart(*each, instantiate=False).describe() for each in own_references(recipe))


def check_unchanged(job: Job, run: RunDir, progress: Progress) -> None:
    """Record code and data in the progress. If they are not those of the checkpoint: limits.changed_data.

    Raises ConfigError.
    """
    for change in (*_changed_images(job, progress), *_changed_code(job, progress)):
        if job.config.limits.changed_data == "refuse":
            raise ConfigError(
                f"{change}, so {run.path} cannot be resumed exactly. Restore what it was, start a new run "
                f"({use('resume', 'never')}), or continue with {use('limits.changed_data', 'accept')}."
            )
        job.warnings = (*job.warnings, change)


def _changed_images(job: Job, progress: Progress) -> list[str]:
    sources = {"train": job.train_source, "val": job.val_source}
    now = job.world.broadcast_from_first(
        lambda: {split: content_of(source) for split, source in sources.items() if source is not None}
    )
    before, progress.data = progress.data or {}, now
    changes = {split: describe_change(was, now[split]) for split, was in before.items() if split in now}
    data = job.config.recipe.data.source
    return [
        f"The {split} images of {data} have changed since the checkpoint ({change})"
        for split, change in changes.items()
        if change
    ]


def _changed_code(job: Job, progress: Progress) -> list[str]:
    known = {(each.setting, each.reference): each for each in progress.code or ()}
    progress.code = describe_code(job.config.recipe) or None
    return [
        f"The code of {given(now.setting, now.reference)} has changed since the checkpoint ({now.file or now.package})"
        for now in progress.code or ()
        if (was := known.get((now.setting, now.reference))) and (was.sha256, was.package) != (now.sha256, now.package)
    ]


def blame_code(recipe: Recipe, error: Exception) -> RunFailed | None:
    """The error of a user's model or optimizer as one sentence; None for an error of Vernier's own."""
    if not own_references(recipe) or not line_of(error):
        return None
    return RunFailed(f"Code of your own {raised(error)} The same command continues from the last checkpoint.")


def guarantees(code: tuple[OwnCode, ...]) -> tuple[str, ...]:
    """What holds for a run with code of its own, and what depends on that code."""
    settings = {each.setting for each in code}
    if not code:
        return ()
    drawn = "order of images, built-in augmentation" + (", rng of transforms" if "augment.extra" in settings else "")
    depends = [
        *(["the same pixels for an index"] if "data.source" in settings else []),
        *(["transforms that draw from rng alone"] if "augment.extra" in settings else []),
        "arithmetic that repeats: bit-identical resume",
    ]
    names = ", ".join(f"{each.reference} ({each.sha256[:8] or each.package or 'no source'})" for each in code)
    return (
        f"own code: {names}",
        f"guaranteed: {drawn} and PyTorch's random numbers are functions of (seed, epoch or step, sample); "
        "every validation image counts once",
        f"up to that code: {'; '.join(depends)}. {command('check')} compares the bits",
    )
