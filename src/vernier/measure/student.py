"""Tails and quantiles of Student's t, for any real degrees of freedom.

A tail is computed as itself, never as one minus the rest, so that 1e-30 is 1e-30. scipy.stats does the same, but scipy
is not a dependency; the tests compare with it if it is installed. The laboratory has further distributions.
"""

import math
from collections.abc import Callable
from functools import lru_cache

TINY = 1e-300
"""Instead of zero in continued fractions."""


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's method); converges fast for x < a / (a + b)."""
    # Lentz's method divides by c and d, so neither may be zero: TINY stands in.
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), TINY)
    value = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) > TINY else TINY), c if abs(c) > TINY else TINY
            value *= c * d
        # The factor of the last term: further ones change no digit of a double.
        if abs(c * d - 1) < 1e-14:
            break
    return value


def beta_share(x: float, a: float, b: float) -> float:
    """Probability that a beta distributed number with parameters a and b is below x."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x),
    )
    # The fraction converges fast only on this side of the mean; the other side is one minus the mirrored share.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def t_tail(t: float, freedom: float) -> float:
    """Probability that Student's t is above `t`."""
    if math.isinf(t):
        return float(t < 0)
    # freedom / (freedom + t^2), not its complement t^2 / (...): the small tail keeps all its digits.
    half = beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return half if t > 0 else 1 - half


def solve(tail: Callable[[float], float], probability: float) -> float:
    """The positive value whose upper tail is `probability`; `tail` falls with its argument."""
    low, high = 0.0, 1.0
    while tail(high) > probability:
        low, high = high, high * 2
    # For probabilities near one half the value is near zero, and bisection needs a bracket of its size.
    while tail(high / 2) <= probability and high > 1e-100:
        high /= 2
        low = high / 2
    # A double has 53 bits; each step halves the bracket.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=4096)
def t_limit(probability: float, freedom: float) -> float:
    """The t that is exceeded with a probability below one half."""
    return solve(lambda t: t_tail(t, freedom), probability)
