"""Rejects statistics that no sample can have: for published tables, and to test the summaries of Vernier.

`contradictions` checks n, mean, median, sd, min, max and percentiles against the inequalities that hold for every set
of numbers, whichever standard deviation a table has: that of a sample (divided by n - 1) or of a population (divided by
n). `needs` says what a table silently implies: a mean above its 99th percentile needs a maximum far beyond it, and some
figures fit together for one of the two standard deviations only.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

_ROUNDING, _UNDERFLOW = 1e-9, 1e-150  # relative; and absolute: squares of smaller deviations underflow, so sd is 0

Divisor = Literal["n - 1", "n"]
"""What the sum of squares is divided by in a standard deviation: `n - 1` for a sample, `n` for a population."""
_DIVISORS: tuple[Divisor, Divisor] = ("n - 1", "n")


def contradictions(
    *,
    n: int | None = None,
    mean: float | None = None,
    median: float | None = None,
    sd: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    percentiles: Mapping[int, float | None] | None = None,
    rounding: float = 0.0,
    divisor: Divisor | None = None,
) -> list[str]:
    """The inequalities that these statistics break; empty when a sample with them can exist. None is not checked.

    `rounding` is half the last digit of published figures. Without a `divisor` sd may be either; with one that does not
    fit, the message says whether the other would.
    """
    every = {
        choice: _contradictions(n, mean, median, sd, minimum, maximum, percentiles or {}, rounding, choice)
        for choice in _DIVISORS
    }
    # Tables rarely state their divisor, and libraries differ (NumPy divides by n by default): either may fit.
    if divisor is None:
        return min(every.values(), key=len)
    other = next(choice for choice in _DIVISORS if choice != divisor)
    fits = every[divisor] and not every[other]
    return every[divisor] + ([f"sd {sd:g} would be possible if it were divided by {other}"] if fits else [])


def _contradictions(
    n: int | None,
    mean: float | None,
    median: float | None,
    sd: float | None,
    minimum: float | None,
    maximum: float | None,
    percentiles: Mapping[int, float | None],
    rounding: float,
    divisor: Divisor,
) -> list[str]:
    figures = [x for x in (mean, median, sd, minimum, maximum, *percentiles.values()) if x is not None]
    if not all(math.isfinite(x) for x in figures):
        return ["a figure is not a number"]
    if n is not None and n < 1:
        return [f"n is {n}"]
    slack = 4 * rounding + _ROUNDING * max((abs(x) for x in figures), default=0.0) + _UNDERFLOW
    by_share = {**{p / 100: v for p, v in percentiles.items()}, 0.0: minimum, 0.5: median, 1.0: maximum}
    ladder = sorted((share, value) for share, value in by_share.items() if value is not None)
    # NaN stands for what was not stated: a comparison with it is False, so nothing is broken
    low, centre, high = (math.nan if x is None else x for x in (minimum, mean, maximum))
    problems = [f"{_name(a)} {x:g} is above {_name(b)} {y:g}" for (a, x), (b, y) in pairwise(ladder) if x > y + slack]
    if centre < low - slack:
        problems.append(f"mean {centre:g} is below minimum {low:g}")
    if centre > high + slack:
        problems.append(f"mean {centre:g} is above maximum {high:g}")
    if sd is not None:
        problems += _spread(n or math.nan, centre, sd, low, high, slack, divisor)
        problems += _around_mean(n, centre, sd, ladder, slack)
    if n is not None and mean is not None:
        problems += _mean_between(n, mean, ladder, slack)
    return problems


def _name(share: float) -> str:
    return {0.0: "minimum", 0.5: "median", 1.0: "maximum"}.get(share, f"p{100 * share:g}")


def _spread(
    n: float, mean: float, sd: float, minimum: float, maximum: float, slack: float, divisor: Divisor
) -> list[str]:
    """sd against the range (Popoviciu, Bhatia-Davis, Nagy) and the extremes against sd (Samuelson)."""
    if sd < 0:
        return [f"sd {sd:g} is negative"]
    if n == 1:
        return [f"one value has no spread, but sd is {sd:g}"] if sd > slack else []
    problems = []
    # The bounds are for a population; a sample's sd is larger by this factor. An unknown n is NaN and gets the factor
    # of n = 2, the largest, so that the bound holds for any n.
    scale = 1.0 if divisor == "n" else math.sqrt(n / (n - 1)) if n > 1 else math.sqrt(2)
    most = (maximum - minimum) / 2 * scale
    if not math.isnan(mean):
        # Bhatia-Davis. If an extreme is missing, max() gives 0, but min(NaN, 0) is NaN: the order of arguments matters.
        most = min(most, math.sqrt(max(0.0, (maximum - mean) * (mean - minimum))) * scale)
    if sd > most + slack * 2 * scale:
        problems.append(f"sd {sd:g} is above {most:g}, the most these extremes allow")
    # Nagy: all values but the two extremes are in the middle of them.
    least = (maximum - minimum) / math.sqrt(2 * (n if divisor == "n" else n - 1))
    if sd < least - slack:
        problems.append(f"sd {sd:g} is below {least:g}, the least this range allows")
    # Samuelson: one value far out, all others equal.
    most_sds = math.sqrt(n - 1) if divisor == "n" else (n - 1) / math.sqrt(n)
    for name, value in (("minimum", minimum), ("maximum", maximum)):
        if abs(value - mean) > sd * most_sds + slack * (1 + most_sds):
            far = abs(value - mean) / sd if sd > 0 else math.inf
            problems.append(f"{name} is {far:.1f} sd from the mean, n = {n} allows {most_sds:.1f}")
    return problems


def _around_mean(n: int | None, mean: float, sd: float, ladder: list[tuple[float, float]], slack: float) -> list[str]:
    """Cantelli: how far a percentile can lie from the mean; for the median, one sd."""
    problems = []
    for share, value in ladder:
        if share in (0.0, 1.0):
            continue
        # Half of the values are on each side of a median however it was interpolated; other percentiles depend on that.
        below, above = (share, 1 - share) if share == 0.5 or n is None else _shares(n, share)
        # At least `part` of the values are as far from the mean as this one: Cantelli bounds how far that can be.
        part = below if value < mean else above
        limit = sd * math.sqrt((1 - part) / part)
        if abs(value - mean) > limit + slack * (1 + limit / sd if sd > 0 else 1):
            problems.append(
                f"|mean - {_name(share)}| = {abs(mean - value):g} exceeds {limit:g}, the most sd {sd:g} allows"
            )
    return problems


def _shares(n: int, share: float) -> tuple[float, float]:
    """The least shares of n values at or below, and at or above, a percentile, however it was interpolated."""
    rank = (n - 1) * share
    return max(1, math.floor(rank)) / n, max(1, n - 1 - math.ceil(rank)) / n


def _mean_between(n: int, mean: float, ladder: list[tuple[float, float]], slack: float) -> list[str]:
    """The mean against all percentiles together: each stretch of values lies between the two that bound it."""
    if len(ladder) < 3 or ladder[0][0] != 0.0 or ladder[-1][0] != 1.0:
        return []
    # The largest possible mean puts every value at the upper end of its stretch, the smallest at the lower end.
    (_, minimum), *inner, (_, maximum) = ladder
    most = _bound(n, [(math.floor((n - 1) * share), value) for share, value in inner], maximum)
    least = _bound(n, [(n - 1 - math.ceil((n - 1) * share), value) for share, value in reversed(inner)], minimum)
    if mean > most + slack:
        return [f"mean {mean:g} is above {most:g}, the most these percentiles and this maximum allow"]
    if mean < least - slack:
        return [f"mean {mean:g} is below {least:g}, the least these percentiles and this minimum allow"]
    return []


def _bound(n: int, ranked: Sequence[tuple[int, float]], rest: float) -> float:
    """The mean of n values: those up to each rank have its value, the others are `rest`."""
    total, used = 0.0, 0
    for rank, value in ranked:
        count = max(used, rank)
        total, used = total + (count - used) * value, count
    return (total + (n - used) * rest) / n


def needs(*, mean: float, percentiles: Mapping[int, float] | None = None, **others: Any) -> list[str]:
    """What a table implies without stating it: its maximum, and by what its standard deviation was divided.

    The maximum follows from a mean above its own percentiles; `others` are further arguments of `contradictions`.
    """
    fits = [d for d in _DIVISORS if not contradictions(mean=mean, percentiles=percentiles, divisor=d, **others)]
    which = "that of a population (divided by n)" if fits == ["n"] else "that of a sample (divided by n - 1)"
    return ([f"sd {others['sd']:g} is {which}: the other would be impossible"] if len(fits) == 1 else []) + [
        f"mean {mean:g} above p{p} {value:g} needs a maximum of at least {value + (mean - value) / (1 - p / 100):g}"
        for p, value in sorted((percentiles or {}).items())
        if 50 < p < 100 and mean > value
    ]
