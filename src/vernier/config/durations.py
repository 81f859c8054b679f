"""Durations as people write them: 90s, 15m, 3h50m, 1.5h, 1d, 03:50:00, 1-12:00:00."""

import re

from vernier.errors import ConfigError
from vernier.references import given

UNTIL_JOB_ENDS = "auto"
_NUMBER = r"(\d+(?:\.\d+)?)"
_UNITS = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")


def parse_duration(text: str, *, allow_zero: bool = False) -> float:
    """The seconds of a duration; more than none, unless zero is allowed. Raises ConfigError."""
    match = (_UNITS.fullmatch(text.strip()) or _CLOCK.fullmatch(text.strip())) if text.strip() else None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total or (match and allow_zero):
        return total
    raise ConfigError(
        f"{text!r} is not a duration. Write it as 90s, 15m, 3h50m or 1d, or as HOURS:MINUTES:SECONDS like 03:50:00."
    )


def check_time_limit(text: str | None) -> None:
    """Refuse a limits.max_time that is no duration. Raises ConfigError."""
    if text is None or text == UNTIL_JOB_ENDS:
        return
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ConfigError(
            f"{given('limits.max_time', text)}: {error.message} `{UNTIL_JOB_ENDS}` is until the end of the Slurm job."
        ) from None
