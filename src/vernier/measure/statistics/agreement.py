"""Whether a result agrees with a published one: a prediction interval, and what was done differently.

A published mean over n runs with standard deviation sd says where the next run of the same thing falls: within
mean +- t(n - 1, 0.975) sd sqrt(1 + 1/n), 95 times out of 100. Used by the engine at the end of a run and by reports.
"""

import math
from typing import Any

from vernier.config import Config, Published, Recipe, differences
from vernier.measure.statistics.estimates import LEVEL, t_quantile

ASSUMED_RUNS = 3
PERCENT = ("top1", "top5")
"""Figures in percent; COCO's are shares."""
_NOT_LEARNING = ("name", "about", "source", "seed", "published", "data.source", "eval.every_epochs")
_MIXED = ("bf16", "fp16")


def prediction_interval(published: Published) -> tuple[float, float] | None:
    """Where one more run should fall; None when no spread was published."""
    if published.sd is None:
        return None
    n = max(2, published.n or ASSUMED_RUNS)
    half = t_quantile(LEVEL, n - 1) * published.sd * math.sqrt(1 + 1 / n)
    return published.mean - half, published.mean + half


def agreement(config: Config, result: dict[str, Any] | None, reference: Recipe | None) -> dict[str, Any] | None:
    """The result against what the recipe's authors published, in the arithmetic nearest to this run's.

    None when there is nothing to compare. `verdict` is inside, above, below, no-spread or not-comparable.
    """
    published = nearest(config)
    if result is None or published is None or published.metric not in result:
        return None
    value, interval = result[published.metric], prediction_interval(published)
    return {
        "metric": published.metric,
        "value": value,
        "published": {"mean": published.mean, "sd": published.sd, "n": published.n},
        "runs_assumed": ASSUMED_RUNS if published.sd is not None and published.n is None else None,
        "where": ", ".join(filter(None, (published.note, published.precision, published.source))),
        "difference": value - published.mean,
        "interval": list(interval) if interval else None,
        "verdict": _verdict(value, interval, published, result),
        "samples": [result.get("samples"), published.samples],
        "differs": what_differs(config, published, reference),
    }


def nearest(config: Config) -> Published | None:
    """The published result of this run's precision, or the first one."""
    wanted = "mixed" if config.machine.precision in _MIXED else config.machine.precision
    entries = config.recipe.published
    return next((p for p in entries if p.precision == wanted), entries[0] if entries else None)


def _verdict(value: float, interval: tuple[float, float] | None, published: Published, result: dict[str, Any]) -> str:
    if result.get("samples") != published.samples:
        return "not-comparable"
    if interval is None:
        return "no-spread"
    return "below" if value < interval[0] else "above" if value > interval[1] else "inside"


def what_differs(config: Config, published: Published, reference: Recipe | None) -> list[str]:
    """Settings in which this run is not the recipe as published, in words: recipe fields, length, precision, loader."""
    recipe, machine, limits = config.recipe, config.machine, config.limits
    found = []
    if reference is not None:
        changed = differences(reference, recipe)
        found += [
            f"{name} {was!r} -> {now!r}"
            for name, (was, now) in changed.items()
            if not any(name == skip or name.startswith(f"{skip}.") for skip in _NOT_LEARNING)
        ]
    if limits.max_steps is not None:
        found.append(f"stopped at {limits.max_steps} steps")
    if limits.max_eval_steps is not None:
        found.append(f"evaluated on {limits.max_eval_steps} batches only")
    mine = "mixed" if machine.precision in _MIXED else machine.precision
    if published.precision and published.precision != mine:
        found.append(f"precision {published.precision} -> {machine.precision}")
    found.append("loader theirs -> Vernier's (libjpeg-turbo, antialiased resize)")
    return found


def agreement_lines(found: dict[str, Any]) -> list[str]:
    """Two lines for a person."""
    mean, sd, n = (found["published"][k] for k in ("mean", "sd", "n"))
    spread = f" +- {sd:g}" if sd is not None else ""
    runs = f" over {n} run(s)" if n else ""
    unit, digits = (" %", 2) if found["metric"] in PERCENT else ("", 4)
    said = f"{found['metric']} {mean:g}{spread}{unit}{runs} ({found['where']})"
    assumed = f", taking {found['runs_assumed']} runs, which were not stated" if found["runs_assumed"] else ""
    got, wanted = found["samples"]
    verdict = {
        "not-comparable": f"not comparable: measured on {got:,} images, published on {wanted:,}",
        "no-spread": f"no spread published: difference {found['difference']:+.{digits}f}",
    }.get(found["verdict"])
    if verdict is None:
        low, high = found["interval"]
        verdict = (
            f"{found['value']:.{digits}f} is {found['verdict']} the 95 % prediction interval "
            f"{low:.{digits}f} to {high:.{digits}f}{assumed}"
        )
    return [f"published  {said}: {verdict}", f"differs    {'; '.join(found['differs'])}"]
