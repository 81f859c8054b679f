import pytest

from vernier.clock import Stopwatch, parse_stamp_s, utc_stamp, wall_s


def test_a_stopwatch_continues_what_earlier_sessions_spent() -> None:
    watch = Stopwatch({"total": 10.0, "compute": 6.0, "other": 4.0})
    watch.add("compute", 1.0)
    spent = watch.spent()
    assert spent["compute"] == 7.0
    assert spent["total"] >= 10.0
    assert spent["other"] == pytest.approx(spent["total"] - 7.0, abs=1e-6)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        Stopwatch().add("compute", -1.0)


def test_time_spent_in_a_block_counts_even_when_it_fails() -> None:
    watch = Stopwatch()

    def fail() -> None:
        with watch.spending("evaluation"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert watch.spent()["evaluation"] >= 0.0


def test_a_stamp_is_read_back_and_what_is_none_is_none() -> None:
    moment = parse_stamp_s(utc_stamp())
    assert moment is not None
    assert abs(moment - wall_s()) < 60
    assert parse_stamp_s("1970-01-01T00:01:00+00:00") == 60
    assert [parse_stamp_s(text) for text in (None, "", "yesterday", "9999-99-99")] == [None] * 4
