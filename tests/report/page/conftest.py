"""Runs for pages: a small real training, made once, and others written through the store."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, only_run
from vernier.cli import main
from vernier.data.decoding.decode import encode_thumbnail
from vernier.records.codec import encode
from vernier.records.events import EvalEvent, Event, StartEvent, StepEvent
from vernier.records.predictions import DetectionExample, ScoredClass, TrueBox
from vernier.records.run import ClassScore, EvalResult, RunSummary
from vernier.report.page.build import Page, build
from vernier.report.page.collect import collect
from vernier.store import RunDir

EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"


@pytest.fixture(scope="session")
def trained(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, really trained and evaluated."""
    out = tmp_path_factory.mktemp("trained")
    more = ["--epochs", "2", "--set", "eval.every_epochs=1", "--set", "limits.log_every_steps=2"]
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY, *more]) == 0
    return only_run(out)


@pytest.fixture
def page_of() -> Callable[..., Page]:
    def make(*paths: Path) -> Page:
        page = build(collect([Path(p) for p in paths]))
        assert "could not be made" not in page.html()
        return page

    return make


def text_of(html: str) -> str:
    """The text of some HTML, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", str(html).replace("<wbr>", "")))


STEP = StepEvent(
    step=110, epoch=1.1, loss=0.25, lr=0.1, samples=320, step_s=(0.1,), wait_s=(0.0,), own_s_by_rank=(0.05, 0.09)
)
"""The next event of a run whose last step so far was the hundredth."""


def emit(run: RunDir, *events: Event) -> None:
    log = run.events()
    for event in events:
        log.emit(event)
    log.close()


def detector(out: Path, name: str = "detector", evil: str = "") -> Path:
    """A detector's run as the engine writes one: figures, classes, examples with boxes."""
    run = RunDir.create(out, name)
    run.write_config({"recipe": {"name": name, "model": {"name": "ssd-small"}, "data": {"source": "shapes"}}})
    run.write_environment({"host": "here"})
    classes = tuple(
        ClassScore(category_id=i, name=n, AP=0.5 - i / 10, AP50=0.7) for i, n in enumerate(["disc", f"star{evil}"])
    )
    figures = dict.fromkeys(("AP", "AP50", "AP75", "APs", "APm", "AR1", "AR10", "AR100", "ARs", "ARm"), 0.4)
    result = EvalResult(samples=10, detections=20, classes=classes, figures={**figures, "APl": None, "ARl": None})
    emit(
        run,
        StartEvent(),
        StepEvent(step=10, epoch=1.0, loss=3.0, lr=0.1, samples=80, step_s=(0.1,) * 10, wait_s=(0.0,) * 10),
        EvalEvent(step=10, epoch=1.0, seconds=1.0, **vars(result)),
    )
    jpeg = encode_thumbnail(np.full((8, 8, 3), 120, np.uint8), 8)
    box, name = (0.1, 0.2, 0.6, 0.7), f"star{evil}"
    objects = tuple(ScoredClass(class_name=name, score=score, box=box) for score in (0.9, 0.1))
    truth = (TrueBox(box=box, class_name=name),)
    example = DetectionExample(image=f"/data/{evil}.jpg", width=8, height=8, jpeg=jpeg, truth=truth, objects=objects)
    run.write_prediction("examples", encode([example]))
    summary = RunSummary(result=result, spent_s={"compute": 1.0, "total": 1.0})
    run.write_status("finished", summary=encode(summary))
    return run.path
