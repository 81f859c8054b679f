import pytest

from vernier.errors import ConfigError
from vernier.measure.profiles import StepRange
from vernier.records.profile import PhaseTimes, ProfileSummary, ProfilingOverhead


def test_a_range_is_two_steps_or_one() -> None:
    assert StepRange.parse("11:15", "range") == StepRange(11, 15)
    assert StepRange.parse("5", "range") == StepRange(5, 5)


@pytest.mark.parametrize("text", ["", "x:y", "3:2", "0:4", "1:2:3", "-1:2"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        StepRange.parse(text, "range")
    assert (error.value.given, error.value.works) == ({"range": text}, [("range", "11:15")])


def test_steps_are_absolute_after_a_resume() -> None:
    StepRange(11, 12).check(done=10, stop=20, option="profile_steps")
    with pytest.raises(ConfigError, match="resumes at step 11"):
        StepRange(10, 12).check(done=10, stop=20, option="profile_steps")
    with pytest.raises(ConfigError, match="ends at step 11"):
        StepRange(10, 12).check(done=0, stop=11, option="profile_steps")


def profile(overhead: ProfilingOverhead | None) -> ProfileSummary:
    times = PhaseTimes(steps=2, seconds={"forward": 0.2}, share={"forward": 1.0})
    return ProfileSummary(method="m", steps=(1, 2), where_the_time_goes=times, overhead=overhead)


def test_a_profile_in_words_says_what_profiling_cost() -> None:
    cost = ProfilingOverhead(ratio=1.5, profiled_step_s_median=0.03, other_step_s_median=0.02, n_profiled=2, n_others=9)
    where, overhead = profile(cost).lines()
    assert "(steps 1 to 2): forward 100.0 %" in where
    assert "1.50 times as long (30.0 ms, n = 2, against 20.0 ms, n = 9; medians)" in overhead
    assert "unknown, fewer than three" in profile(None).lines()[1]
