"""Numbers as the page shows them. `assets/numbers.js` has the same rules for charts, and a test compares the two.

1. A figure with a 95 % interval has the digits that the interval supports.
2. Figures without one that stand together (a column, a chart) have as many digits after the point as give the largest
   of them three significant ones. A single one has four significant digits.
3. Thousands are separated by commas, very small numbers are powers of ten, bytes are KiB, MiB or GiB.
"""

import math
from collections.abc import Iterable
from typing import Any

from vernier.measure.estimates import in_known_digits

NONE = "\u2013"
SMALLEST = 1e-4
"""Below it, numbers are written as powers of ten."""
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: Any, digits: int | None = None) -> str:
    """A value as people read it: a number in `digits` after the point or four significant ones; a dash for None."""
    if value is None or value == "":
        return NONE
    # Before int, of which bool is a kind.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    if digits is not None:
        return _with_digits(value, digits)
    size = abs(value)
    if size >= 1000:
        return f"{value:,.{1 if size < 10_000 else 0}f}".removesuffix(".0")
    return f"{value:.4g}" if size >= SMALLEST or size == 0 else _power_of_ten(value)


def _power_of_ten(value: float) -> str:
    factor, _, exponent = f"{value:.2e}".partition("e-")
    return f"{factor} \u00d7 10⁻{exponent.lstrip('0').translate(_RAISED)}"


def decimals(values: Iterable[float]) -> int:
    """Digits after the point with which the largest of some numbers has three significant ones."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0


def _with_digits(value: float, digits: int) -> str:
    """A number with `digits` after the point; one that would round to 0 is shown as below the smallest: `< 0.01`."""
    places, unit = max(0, digits), 10.0**-digits
    if value > 0 and round(value, digits) == 0:
        return f"< {unit:.{places}f}"
    return f"{round(value, digits):,.{places}f}"


def measured(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """A figure and its 95 % interval in the digits that the interval supports; three digits without an interval."""
    if low is None:
        digits = 2 - math.floor(math.log10(abs(value))) if value else 0
        return f"{round(value, digits):,.{max(0, digits)}f}", ""
    half = (value - low) if high is None else (high - low) / 2
    shown, bottom = (in_known_digits(v, half) for v in (value, low))
    return shown, f"95 %: above {bottom}" if high is None else f"95 %: {bottom} to {in_known_digits(high, half)}"


def when(stamp: str | None) -> str:
    """A UTC stamp to the minute, with its zone."""
    return f"{stamp[:16].replace('T', ' ')} UTC" if stamp else ""
