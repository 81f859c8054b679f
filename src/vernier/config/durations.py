"""Durations as people write them: 90s, 15m, 3h50m, 1d, 03:50:00, 1-12:00:00."""

import re

from vernier.errors import ConfigError

UNTIL_JOB_ENDS = "auto"
_UNITS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")


def parse_duration(text: str) -> int:
    """The seconds of a duration, more than none. Raises ConfigError."""
    match = _UNITS.fullmatch(text.strip()) or _CLOCK.fullmatch(text.strip())
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    if total := ((days * 24 + hours) * 60 + minutes) * 60 + seconds:
        return total
    raise ConfigError(
        f"{text!r} is not a duration. Write it as 90s, 15m, 3h50m or 1d, or as HOURS:MINUTES:SECONDS like 03:50:00."
    )


def check_time_limit(text: str | None) -> None:
    """Refuse a limits.max_time that says no time. Raises ConfigError."""
    if text is None or text == UNTIL_JOB_ENDS:
        return
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--max-time: {error} `{UNTIL_JOB_ENDS}` is until the end of the Slurm job.") from None
