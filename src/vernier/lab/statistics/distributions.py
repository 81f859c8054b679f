"""Tails and quantiles of chi-squared and F, for any real degrees of freedom; Student's t is in `measure.student`."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from vernier.measure.estimates import Floats
from vernier.measure.student import TINY, beta_share, solve, t_limit


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
    c, d = 1 / TINY, 1 / b
    value = d
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2
        d, c = 1 / (step * d + b), b + step / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value


@lru_cache(maxsize=1024)
def chi2_limit(probability: float, freedom: float) -> float:
    """The value that a chi-squared number exceeds with this probability."""
    return solve(lambda x: chi2_tail(x, freedom), probability)


@lru_cache(maxsize=1024)
def f_limit(probability: float, first: float, second: float) -> float:
    """The ratio that Fisher's F exceeds with this probability."""
    return solve(lambda x: f_tail(x, first, second), probability)


def _of_arrays(limit: Callable[..., float]) -> Callable[..., Floats]:
    """A limit of arrays: the probability, then degrees of freedom. Below one degree it is infinite."""
    return np.vectorize(lambda p, *freedoms: limit(p, *freedoms) if min(freedoms) >= 1 else math.inf, otypes=[float])


t_limits, chi2_limits, f_limits = map(_of_arrays, (t_limit, chi2_limit, f_limit))
