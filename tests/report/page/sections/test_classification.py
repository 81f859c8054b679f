"""The classification section."""

from collections.abc import Callable
from pathlib import Path

from tests.report.page.conftest import text_of
from tests.report.run_dirs import step_times, write_run
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.build import Page
from vernier.report.page.sections.classification import _class_name
from vernier.store import RunDir

PageOf = Callable[..., Page]


MISTAKES = Mistakes(
    classes=("cat", "dog"),
    samples=(4, 4),
    correct=(1, 4),
    confused=((0, 1, 3),),
    mistakes=(Mistake(image="cats/7.jpg", truth=0, taken_for=1, score=0.9, truth_score=0.1),),
)


def test_the_worst_class_comes_first_and_its_mistakes_are_shown(tmp_path: Path, page_of: PageOf) -> None:
    run = RunDir(write_run(tmp_path, "cats", step_times(1, n=20)))
    run.write_prediction("mistakes", encode(MISTAKES))
    page = page_of(run.path)
    assert [list(r) for r in page.figures["classes-0"].rows] == [["cat", 25.0, 4], ["dog", 100.0, 4]]
    assert ["cat", "dog", 3] in [list(r) for r in page.figures["confusion-0"].rows]
    text = text_of(next(s.html for s in page.sections if s.name == "classification"))
    assert "dog 90 %" in text
    assert "is cat, given 10 %" in text


def test_every_validation_image_is_in_the_confusion(trained: Path, page_of: PageOf) -> None:
    assert sum(r[2] for r in page_of(trained).figures["confusion-0"].rows) == 50


def test_an_output_without_a_class_has_a_number() -> None:
    assert _class_name(MISTAKES, 1) == "dog"
    assert _class_name(MISTAKES, 5) == "output 5"
