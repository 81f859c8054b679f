"""Compares a run with what was published: accuracy with a prediction interval, speed, and what it did differently.

A published mean over n runs with standard deviation sd predicts the next run of the same recipe: 95 % of them fall
within mean +- t(n - 1, 0.975) sd sqrt(1 + 1/n). A published number is known to half of its last digit: that is the
least spread, and the mean can be off by as much. Which formula gave a spread is hardly ever stated, so it is taken as
that of a population (NumPy's default), which is the smaller one: the interval is the wider. Used by the engine at the
end of a run and by reports.
"""

import math
from dataclasses import replace

from vernier.config import Config, Published, Recipe, differences
from vernier.records.run import Agreement, AgreementVerdict, EvalResult, PublishedFigure, RunSummary
from vernier.wording import plural

from .estimates import LEVEL
from .published import published_speeds
from .student import t_limit

ASSUMED_RUNS = 3
_POWER_OF_FEW = "; 3 standard deviations off are then found in 12 to 45 % of cases"
"""Measured for 10 to 2 true runs, with as many cases of normal results."""
PERCENT = ("top1", "top5")
"""Figures in percent; COCO's are shares."""
_NOT_LEARNING = ("name", "about", "source", "seed", "published", "data.source", "eval.every_epochs")
_MIXED = ("bf16", "fp16")


def _prediction_interval(published: Published) -> tuple[float, float] | None:
    """Where 95 % of further runs should fall; None when no spread was published."""
    if published.sd is None:
        return None
    n = max(2, published.n or ASSUMED_RUNS)
    # Both are published in as many digits: 77.0 with 0.12 was 77.00.
    half_digit = 0.5 / 10 ** max(len(repr(number).partition(".")[2]) for number in (published.mean, published.sd))
    sd = max(published.sd, half_digit) * math.sqrt(n / (n - 1))
    half = t_limit((1 - LEVEL) / 2, n - 1) * sd * math.sqrt(1 + 1 / n) + half_digit
    return published.mean - half, published.mean + half


def _agreement(config: Config, result: EvalResult | None, reference: Recipe | None) -> Agreement | None:
    """The result against what the recipe's authors published: the figure nearest in precision, then in batch.

    None when there is nothing to compare. `reference` is the recipe before the user changed it.
    """
    published = _nearest_published(config, reference)
    if result is None or published is None or (value := result.figures.get(published.metric)) is None:
        return None
    interval = _prediction_interval(published)
    return Agreement(
        metric=published.metric,
        value=value,
        published=PublishedFigure(mean=published.mean, sd=published.sd, n=published.n),
        runs_assumed=ASSUMED_RUNS if published.sd is not None and published.n is None else None,
        where=_where_published(published),
        difference=value - published.mean,
        interval=interval,
        verdict=_verdict(value, interval, comparable=result.samples == published.samples),
        samples=(result.samples, published.samples),
        differs=tuple(_what_differs(config, published, reference)),
    )


def _nearest_published(config: Config, reference: Recipe | None = None) -> Published | None:
    """The published figure that this run should be compared with; None where its recipe has none.

    Of the recipe's first metric: the one in the run's precision (TF32 and fp32 are nearer to each other than to mixed
    precision), then that of the nearest global batch, then the first.
    """
    entries, precision = config.recipe.published, published_precision(config.machine.precision)
    usual_batch = (reference or config.recipe).global_batch

    def distance(entry: Published) -> tuple[int, float]:
        full = {entry.precision, precision} <= {"fp32", "tf32"}
        # In logarithms: half the batch is as far as twice the batch.
        apart = math.log((entry.global_batch or usual_batch) / config.recipe.global_batch)
        return (0 if entry.precision == precision else 1 if full else 2), abs(apart)

    return min((p for p in entries if p.metric == entries[0].metric), key=distance, default=None)


def _where_published(published: Published) -> str:
    """Where a figure is from, in words: devices, batch, precision, circumstances, source."""
    device = f"{published.devices} x {published.device}" if published.devices else published.device
    batch = f"global batch {published.global_batch:,}" if published.global_batch else ""
    return ", ".join(filter(None, (device, batch, published.precision, published.note, published.source)))


def published_precision(precision: str) -> str:
    """The word with which publications name a precision."""
    return "mixed" if precision in _MIXED else precision


def _verdict(value: float, interval: tuple[float, float] | None, *, comparable: bool) -> AgreementVerdict:
    if not comparable:
        return "not-comparable"
    if interval is None:
        return "no-spread"
    return "below" if value < interval[0] else "above" if value > interval[1] else "inside"


def _what_differs(config: Config, published: Published, reference: Recipe | None) -> list[str]:
    """Settings in which this run is not the recipe as published, in words: recipe fields, length, precision, loader."""
    recipe, limits = config.recipe, config.limits
    changes = []
    if reference is not None:
        changes += [
            f"{name} {was!r} -> {now!r}"
            for name, (was, now) in differences(reference, recipe).items()
            if not any(name == skip or name.startswith(f"{skip}.") for skip in _NOT_LEARNING)
            and not (name == "global_batch" and published.global_batch == recipe.global_batch)
        ]
    if limits.max_steps is not None:
        changes.append(f"stopped at {limits.max_steps} steps")
    if limits.max_eval_steps is not None:
        changes.append(f"evaluated on {limits.max_eval_steps} batches only")
    if published.precision and published.precision != published_precision(config.machine.precision):
        changes.append(f"precision {published.precision} -> {config.machine.precision}")
    # True of every run: no publication used this loader.
    changes.append("loader of the publication -> Vernier's (libjpeg-turbo, antialiased resize)")
    return changes


def agreement_lines(agreement: Agreement) -> list[str]:
    """Two lines for a person: the verdict, and what differs."""
    published = agreement.published
    spread = f" +- {published.sd:g}" if published.sd is not None else ""
    runs = f" over {plural(published.n, 'run')}" if published.n else ""
    unit, digits = (" %", 2) if agreement.metric in PERCENT else ("", 4)
    figure = f"{agreement.metric} {published.mean:g}{spread}{unit}{runs} ({agreement.where})"
    if agreement.verdict == "not-comparable":
        verdict = "not comparable: measured on {:,} images, published on {:,}".format(*agreement.samples)
    elif agreement.interval is None:
        verdict = f"no spread published: difference {agreement.difference:+.{digits}f}"
    else:
        low, high = agreement.interval
        count = agreement.runs_assumed
        assumed = f", assuming {count} runs, because their number was not published{_POWER_OF_FEW}" if count else ""
        verdict = (
            f"{agreement.value:.{digits}f} is {agreement.verdict} the 95 % prediction interval "
            f"{low:.{digits}f} to {high:.{digits}f}{assumed}"
        )
    return [f"published  {figure}: {verdict}", f"differs    {'; '.join(agreement.differs)}"]


def assess(config: Config, status: str, summary: RunSummary, *, reference: Recipe | None) -> RunSummary:
    """Add agreement with the published accuracy, and published speeds of the same device.

    `reference` is the built-in recipe that the run is based on: what differs from it is named with the verdict. The
    accuracy of a run that did not finish, of a smoke run, or of one that went back to a checkpoint is not compared.
    """
    comparable = status == "finished" and not config.limits.smoke and not summary.rollbacks
    speed = summary.training
    return replace(
        summary,
        agreement=_agreement(config, summary.result, reference) if comparable else None,
        published_speeds=(published_speeds(summary.ran, speed.images_per_s_total) or None) if speed else None,
    )
