"""What a person sees while a study runs."""

from pathlib import Path

from vernier.api.session import Session
from vernier.api.wording import PythonWords
from vernier.lab.records.bench import MeasuringProgress
from vernier.lab.report.progress import StudyDisplay
from vernier.lab.requests.studies import StudyRun
from vernier.lab.study.files import StudyDir
from vernier.lab.study.run import StudySettings
from vernier.references import plain


class Spoken(Session):
    """A session that keeps what it is to print."""

    def __init__(self, *, devices: int = 2, iterations: int = 10) -> None:
        super().__init__(PythonWords(StudyRun))
        self.lines: list[str] = []
        settings = StudySettings(workload="sgemm", iterations=iterations, repeats=3, device="cpu")
        self.display = StudyDisplay(self, settings, devices)

    def warn(self, *lines: str) -> None:
        self.lines.extend(map(plain, lines))


def test_a_study_begins_with_its_size_and_what_is_there_already() -> None:
    spoken = Spoken()
    spoken.display.begin(StudyDir(Path("runs/study")), done=2, total=6)
    assert "2 devices x 3 repeats x 10 iterations; 2 of 6 repeats are in runs/study already" in spoken.lines


def test_one_device_cannot_differ_from_others() -> None:
    spoken = Spoken(devices=1)
    spoken.display.begin(StudyDir(Path("runs/study")), done=0, total=3)
    assert any(line.startswith("one device") for line in spoken.lines)


def test_a_long_study_comes_with_what_would_shorten_it() -> None:
    short, long = Spoken(), Spoken(iterations=10_000)
    short.display.progress(MeasuringProgress(phase="measuring", fastest_s=0.01), left=6)
    long.display.progress(MeasuringProgress(phase="measuring", fastest_s=0.1), left=6)
    assert len(short.lines) == 1
    assert "iterations" in long.lines[1]


def test_every_repeat_is_shown() -> None:
    spoken = Spoken()
    spoken.display.repeat(1, 6, "cpu:0")
    assert spoken.lines == ["1/6 cpu:0"]
