"""Tails and quantiles of Student's t, chi-squared and F, for any real degrees of freedom.

A tail is computed as itself, never as one minus the rest, so that 1e-30 is 1e-30. scipy.stats does the same, but scipy
is not a dependency; the tests compare with it where it is installed.
"""

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's method); converges fast for x < a / (a + b)."""
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), _TINY)
    value = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) > _TINY else _TINY), c if abs(c) > _TINY else _TINY
            value *= c * d
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
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def t_tail(t: float, freedom: float) -> float:
    """Probability that Student's t is above `t`."""
    if math.isinf(t):
        return float(t < 0)
    half = beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return half if t > 0 else 1 - half


def f_tail(ratio: float, first: float, second: float) -> float:
    """Probability that Fisher's F with these degrees of freedom is above `ratio`."""
    return beta_share(second / (second + first * ratio), second / 2, first / 2) if ratio > 0 else 1.0


def chi2_tail(value: float, freedom: float) -> float:
    """Probability that a chi-squared number is above `value`."""
    a, x = freedom / 2, value / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # the series of the lower part
        term = total = 1 / a
        k = a
        while term > total * 1e-16:
            k += 1
            term *= x / k
            total += term
        return 1 - front * total
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    value = d
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2
        d, c = 1 / (step * d + b), b + step / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value


def _solve(tail: Callable[[float], float], probability: float) -> float:
    """The positive value whose upper tail is `probability`; `tail` falls with its argument."""
    low, high = 0.0, 1.0
    while tail(high) > probability:
        low, high = high, high * 2
    while tail(high / 2) <= probability and high > 1e-100:
        high /= 2
        low = high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=4096)
def t_limit(probability: float, freedom: float) -> float:
    """The t that is exceeded with a probability below one half."""
    return _solve(lambda t: t_tail(t, freedom), probability)


@lru_cache(maxsize=1024)
def chi2_limit(probability: float, freedom: float) -> float:
    """The value that a chi-squared number exceeds with this probability."""
    return _solve(lambda x: chi2_tail(x, freedom), probability)


@lru_cache(maxsize=1024)
def f_limit(probability: float, first: float, second: float) -> float:
    """The ratio that Fisher's F exceeds with this probability."""
    return _solve(lambda x: f_tail(x, first, second), probability)
