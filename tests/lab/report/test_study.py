"""What a person sees while a study runs."""

from pathlib import Path

from vernier.lab.report.study import StudyDisplay
from vernier.lab.study.files import StudyDir
from vernier.lab.study.run import StudySettings
from vernier.references import plain


class Spoken:
    """A display that keeps what it prints."""

    def __init__(self, *, devices: int = 2, iterations: int = 10) -> None:
        self.lines: list[str] = []
        self.moved: list[tuple[int, int]] = []
        settings = StudySettings(workload="sgemm", iterations=iterations, repeats=3, device="cpu")
        self.display = StudyDisplay(
            settings, devices, lambda *lines: self.lines.extend(map(plain, lines)), lambda *at: self.moved.append(at)
        )


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
    short.display.pace(0.01, left=6)
    long.display.pace(0.1, left=6)
    assert len(short.lines) == 1
    assert "iterations" in long.lines[1]


def test_repeats_move_the_bar() -> None:
    spoken = Spoken()
    spoken.display.repeat(1, 6, "cpu:0")
    assert spoken.moved == [(1, 6)]
