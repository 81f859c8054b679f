"""Durations, sizes and percentages as text: what people write is read here, and what they read is written here.

Each form has one purpose: a clock for what goes on, rough figures for estimates, decimal sizes for files, binary ones
for memory.
"""

import math
import re

from .errors import ConfigError
from .wording import two_digits

_NUMBER = r"(\d+(?:\.\d+)?)"
_UNITS = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")  # also with days in front, as Slurm writes it


def parse_duration(text: str, *, positive: bool = False) -> float:
    """The seconds of a duration: 90s, 15m, 3h50m, 1.5h, 1d, 03:50:00, 1-12:00:00. Raises ConfigError."""
    match = (_UNITS.fullmatch(text.strip()) or _CLOCK.fullmatch(text.strip())) if text.strip() else None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total or (match and not positive):
        return total
    raise ConfigError(
        f"{text!r} is not a duration. Write it as 90s, 15m, 3h50m or 1d, or as HOURS:MINUTES:SECONDS like 03:50:00."
    )


def duration(seconds: float) -> str:
    """Write a duration as a clock does: 1:02:03 or 2:03."""
    minutes, secs = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def rough_duration(seconds: float) -> str:
    """A duration in the unit people would use: 45 s, 12 min, 3.5 h, 40 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86_400:,.0f} days"


def age(seconds: float) -> str:
    """How long ago something was: 40 s, 7 min, 30 h, 12 d."""
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        # From two on: "1 h" could stand for nearly two.
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def measured_duration(seconds: float) -> str:
    """A duration that was measured: 0.42 s, 38 s, 12 min 5 s, 3 h 20 min."""
    # Two digits: below ten seconds, a second is too coarse.
    if seconds < 10 or not math.isfinite(seconds):
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def file_size(size_bytes: float) -> str:
    """Disk space: 0 B, 12 kB, 3.4 MB, 120 MB, 1.2 GB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    # 999.5 would be written as 1000, which is 1.0 of the next unit.
    while size_bytes >= 999.5 and len(units) > 1:
        size_bytes, units = size_bytes / 1000, units[1:]
    decimals = 1 if size_bytes < 9.95 and len(units) < 4 else 0
    return f"{size_bytes:.{decimals}f} {units[0]}"


def memory_size(size_bytes: float) -> str:
    """Memory: 23.5 GiB."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} bytes"
    power = min(4, int(math.log(size_bytes, 1024)))
    return f"{size_bytes / 1024**power:.3g} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def rough_memory(size_bytes: float) -> str:
    """Memory that is estimated: 0.021 GiB, 1.6 GiB, 43 GiB."""
    return f"{two_digits(size_bytes / 2**30)} GiB"


def fraction(text: str) -> float:
    """The number of a percentage with its sign: 0.01 for 1%."""
    return float(text.strip().removesuffix("%")) / 100
