"""What samples come to: an estimate with its interval, a summary, a comparison of two speeds.

`lab.statistics` computes them; every other record that holds such a figure uses these types.
"""

from typing import Literal

from vernier.frozen import frozen

from .codec import omitted

SpeedVerdict = Literal["faster", "slower", "cannot tell"]


@frozen
class Estimate:
    """A value with its 95 % interval; None where the samples cannot tell. `basis` says how it was estimated.

    `needs` is the number of samples that an interval needs, where there are too few.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    basis: str
    method: str | None = omitted()
    needs: int | None = omitted()


@frozen
class SampleSummary:
    """Statistics of a set of samples. `of` names what one value is: "step, all devices", "iteration, one device".

    `low` and `high` are the 95 % interval of the mean; None where the samples cannot tell. `cv` is sd / mean.
    """

    unit: str
    of: str
    n: int
    mean: float
    median: float
    sd: float
    min: float
    max: float
    low: float | None = None
    high: float | None = None
    basis: str = ""
    method: str = ""
    p5: float | None = None
    p95: float | None = None
    p99: float | None = None
    cv: float | None = None


@frozen
class Comparison:
    """Speed of B over speed of A. `within_tolerance`: the whole 95 % interval is closer to 1 than the tolerance.

    `detectable` is the smallest difference, as a share, that a comparison like this finds in 80 % of cases.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: SpeedVerdict
    tolerance: float
    within_tolerance: bool
    a_samples_per_s: float
    b_samples_per_s: float
    runs: tuple[int, int]
    steps: tuple[int, int]
    basis: str
    method: str = ""
    detectable: float | None = omitted()
