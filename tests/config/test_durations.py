import pytest

from vernier.config.durations import check_time_limit, parse_duration
from vernier.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("3h50m", 13_800),
        ("1d", 86_400),
        ("1d2h3m4s", 93_784),
        ("03:50:00", 13_800),
        ("1-12:00:00", 129_600),
        ("1.5h", 5400),
    ],
)
def test_durations_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "0s", "3h 50m", "50m3h", "03:50", "-1h", "3:99:00", "soon"])
def test_anything_else_is_refused_with_the_forms_that_work(text: str) -> None:
    with pytest.raises(ConfigError, match="3h50m"):
        parse_duration(text)


def test_a_time_limit_may_be_absent_or_that_of_the_job() -> None:
    check_time_limit(None)
    check_time_limit("auto")
    check_time_limit("90s")
    with pytest.raises(ConfigError) as refused:
        check_time_limit("fast")
    assert refused.value.given == {"limits.max_time": "fast"}
