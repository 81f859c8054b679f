"""What the actions of `study` take."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.studies import StudyAnalyze, StudyDesign, StudyMerge, StudyRun
from vernier.requests.wording import command_line


def test_sources_are_all_words_without_a_flag() -> None:
    request, _ = parse(StudyAnalyze, ["a", "b", "--columns", "step_time=x,device=y", "c"], "study analyze")
    assert request == StudyAnalyze(sources=("a", "b", "c"), columns={"step_time": "x", "device": "y"})  # type: ignore[arg-type]
    assert parse(StudyMerge, ["a", "b", "--output", "c"], "study merge")[0] == StudyMerge(sources=("a", "b"), out="c")


def test_a_study_is_resumed_by_the_words_of_its_request() -> None:
    words = "study run --workload sgemm --repeats 3 --pause 0s --slow 1=1.5 --virtual 4 --out runs/x --device cpu"
    request, _ = parse(StudyRun, words.split()[2:], "study run")
    assert sorted(command_line(request)) == sorted(words.split())


def test_seconds_of_a_repeat_under_the_old_name() -> None:
    assert parse(StudyDesign, ["--repeat-seconds", "90"], "study design")[0].repeat_time == "90s"
    with pytest.raises(ConfigError) as refused:
        parse(StudyDesign, ["--repeat-time", "90"], "study design")
    assert refused.value.given == {"repeat_time": "90"}


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (StudyRun, "iterations", 1),
        (StudyRun, "repeats", 0),
        (StudyRun, "kernels", -1),
        (StudyDesign, "seed", -1),
        (StudyDesign, "noise", "200%"),
        (StudyDesign, "devices", 2),
        (StudyDesign, "repeats", 1),
        (StudyDesign, "find", "0%"),
        (StudyDesign, "fleets", 0),
        (StudyDesign, "repeat_time", "0s"),
    ],
)
def test_what_is_out_of_range_is_refused(cls: type[StudyRun], name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        cls(**{name: value})  # type: ignore[arg-type]
    assert refused.value.given == {name: value}
