"""A race between the value in use and others: rounds of one turn each, and who is certainly faster or slower.

Every round gives a paired ratio of speeds. The rounds are looked at only so often (LOOKS), and Student's interval is
widened for the number of looks and of candidates (Bonferroni): with a probability of at least 95 % no interval of the
whole race misses its true ratio, so that a value that is not faster is chosen in at most 2.5 % of races. Slower values
are dropped at a look; the race ends when nothing is open any more.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

from vernier.frozen import frozen
from vernier.measure.distributions import t_limit

LOOKS = (5, 8, 12, 18, 27, 40)
"""After these rounds the race is judged."""
FEWEST_ROUNDS = 3  # two differences have one degree of freedom, for which Student's t is 12.7
ERROR = 0.05
WORTH = 0.01
"""A gain below this share is not worth a setting, and as small as processes of the same settings differ by."""


@frozen
class Ratio:
    """Natural logarithm of a ratio of speeds, with its interval; unbounded below FEWEST_ROUNDS."""

    value: float
    low: float
    high: float


def paired_ratio(own: Sequence[float], other: Sequence[float], error: float = ERROR) -> Ratio:
    """The speed of one over another from rates of the same rounds; the interval misses it with a probability `error`.

    Rates that do not vary at all give an interval without width: the differences themselves are the judge.
    """
    # Not strict: a candidate that was dropped has the first rounds only, and zip pairs it with the base's same rounds.
    apart = [math.log(a / b) for a, b in zip(own, other, strict=False)]
    value, count = statistics.fmean(apart), len(apart)
    if count < FEWEST_ROUNDS:
        return Ratio(value=value, low=-math.inf, high=math.inf)
    half = t_limit(error / 2, count - 1) * statistics.stdev(apart) / math.sqrt(count)
    return Ratio(value=value, low=value - half, high=value + half)


class Race:
    """Rates by round of the value in use (`base`) and of the candidates; `open` are those not decided yet."""

    def __init__(self, candidates: Sequence[str]) -> None:
        self.base: list[float] = []
        self.rates: dict[str, list[float]] = {name: [] for name in candidates}
        self.open = list(candidates)
        # Every look at every candidate is a test of its own, also if the race ends early.
        self._error = ERROR / (len(LOOKS) * max(1, len(candidates)))

    @property
    def rounds(self) -> int:
        return len(self.base)

    def add(self, base: float, rates: Mapping[str, float]) -> None:
        """Add one round: images per second of the base and of every open candidate; look where it is time to."""
        self.base.append(base)
        for name in self.open:
            self.rates[name].append(rates[name])
        if self.open and self.rounds in LOOKS:  # the last candidate may have failed in this very round
            self._look()

    def drop(self, name: str) -> None:
        """Leave a candidate out that cannot take turns any more."""
        self.open.remove(name)

    @property
    def over(self) -> bool:
        """Whether no further round would change the choice."""
        # After the last look a further round would never be judged.
        return not self.open or self.rounds >= LOOKS[-1]

    def ratio(self, name: str) -> Ratio | None:
        """The speed of a candidate over that of the base; None without a round."""
        return paired_ratio(self.rates[name], self.base, self._error) if self.rates[name] else None

    def is_faster(self, name: str) -> bool:
        """Whether a candidate is certainly faster, and by enough to matter."""
        ratio = self.ratio(name)
        return ratio is not None and ratio.low > 0 and ratio.value >= math.log1p(WORTH)

    def is_slower(self, name: str) -> bool:
        """Whether a candidate is certainly slower."""
        ratio = self.ratio(name)
        return ratio is not None and ratio.high < 0

    def winner(self) -> str | None:
        """The fastest of those that are certainly faster than the base; None: the base stays."""
        faster = [name for name in self.rates if self.is_faster(name)]
        return max(faster, key=lambda name: self._ratio_now(name).value, default=None)

    def _look(self) -> None:
        """Drop what is certainly slower than the base or than the best, or not worth it; end when one is left."""
        values = {name: self._ratio_now(name) for name in self.open}
        # All open candidates have as many rounds as the base, so that their ratios can be compared.
        best = max(values, key=lambda name: values[name].value)
        for name, ratio in values.items():
            not_worth = ratio.high < math.log1p(WORTH)
            if not_worth or (name != best and self._is_behind(name, best)):
                self.drop(name)
        # Clearly better than the base and than all others: further rounds would only narrow its interval.
        if self.open == [best] and self.is_faster(best):
            self.drop(best)

    def _ratio_now(self, name: str) -> Ratio:
        return paired_ratio(self.rates[name], self.base, self._error)

    def _is_behind(self, name: str, best: str) -> bool:
        return paired_ratio(self.rates[name], self.rates[best], self._error).high < 0
