"""Compares the values of one setting with the value in use: rounds of one measurement each.

Every round gives a paired ratio of speeds. The rounds are looked at only so often (LOOKS), and Student's interval is
widened for the number of looks and of candidates (Bonferroni): with a probability of at least 95 % no interval misses
its true ratio. Slower values are dropped at a look; the rounds end when nothing is open any more. All rounds are of one
process per value, and equal processes differ: `search` measures the best value again, in new ones.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from vernier.frozen import frozen
from vernier.lab.statistics.comparison import ratio_rows_of_rounds
from vernier.measure.estimates import LEVEL

LOOKS = (5, 8, 12, 18, 27, 40)
"""After these rounds the values are judged."""
FEWEST_ROUNDS = 3  # two differences have one degree of freedom, for which Student's t is 12.7
WORTH = 1.01
"""A smaller ratio is not worth a setting, and as small as processes of the same settings differ by."""


@frozen
class Ratio:
    """How many times as fast, with its interval; unbounded below FEWEST_ROUNDS."""

    ratio: float
    low: float = 0.0
    high: float = math.inf

    @property
    def is_faster(self) -> bool:
        """Whether it is certainly faster, and by enough to matter."""
        return self.low > 1 and self.ratio >= WORTH


def paired_ratio(own: Sequence[float], other: Sequence[float], level: float = LEVEL) -> Ratio:
    """The speed of one over another from rates of the same rounds.

    A candidate that was dropped has the first rounds only, and is compared in those.
    """
    logs = [np.log([side[: len(own)]]) for side in (other, own)]
    if len(own) < FEWEST_ROUNDS:
        return Ratio(ratio=math.exp(statistics.fmean(logs[1][0] - logs[0][0])))
    ratios = ratio_rows_of_rounds(logs[0], logs[1], level)
    ratio, low, high = (math.exp(float(column[0])) for column in ratios[:3])
    return Ratio(ratio=ratio, low=low, high=high)


class ComparedValues:
    """Rates by round of the value in use (`base`) and of the candidates; `open` are those not decided yet."""

    def __init__(self, candidates: Sequence[str]) -> None:
        self.base: list[float] = []
        self.rates: dict[str, list[float]] = {name: [] for name in candidates}
        self.open = list(candidates)
        # Every look at every candidate is a test of its own, also if the rounds end early.
        self._level = 1 - (1 - LEVEL) / (len(LOOKS) * max(1, len(candidates)))

    def add(self, base: float, rates: Mapping[str, float]) -> None:
        """Add one round: images per second of the base and of every open candidate; look where it is time to."""
        self.base.append(base)
        for name in self.open:
            self.rates[name].append(rates[name])
        if self.open and len(self.base) in LOOKS:  # the last candidate may have failed in this very round
            self._look()

    @property
    def over(self) -> bool:
        """Whether no further round would change the choice."""
        # After the last look a further round would never be judged.
        return not self.open or len(self.base) >= LOOKS[-1]

    def ratio(self, name: str) -> Ratio | None:
        """The speed of a candidate over that of the base; None without a round."""
        return paired_ratio(self.rates[name], self.base, self._level) if self.rates[name] else None

    def best(self) -> str | None:
        """The fastest of those that are certainly faster than the base; None: the base stays."""
        ratios = {name: ratio for name in self.rates if (ratio := self.ratio(name)) is not None and ratio.is_faster}
        return max(ratios, key=lambda name: ratios[name].ratio, default=None)

    def _look(self) -> None:
        """Drop what is certainly slower than the base or than the best, or not worth it; end when one is left."""
        ratios = {name: paired_ratio(self.rates[name], self.base, self._level) for name in self.open}
        # All open candidates have as many rounds as the base, so that their ratios can be compared.
        best = max(ratios, key=lambda name: ratios[name].ratio)
        for name, ratio in ratios.items():
            behind = name != best and paired_ratio(self.rates[name], self.rates[best], self._level).high < 1
            if ratio.high < WORTH or behind:
                self.open.remove(name)
        # Clearly better than the base and than all others: further rounds would only narrow its interval.
        if self.open == [best] and ratios[best].is_faster:
            self.open.remove(best)
