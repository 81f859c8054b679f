"""The page: one file, with other people's text as text."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.page.conftest import EVIL, detector
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.build import Page, build
from vernier.report.page.collect import Subject, collect
from vernier.report.page.figures import Section
from vernier.store import RunDir

LIMIT_BYTES = 6_000_000


def test_the_page_is_one_file_that_loads_nothing_else(trained: Path, page_of: Callable[..., Page]) -> None:
    html = page_of(trained).html()
    assert len(html.encode()) < LIMIT_BYTES
    elsewhere = re.findall(r"""(?:src|href|action)=["']?(?!data:|#)([^"'\s>]+)""", html)
    assert elsewhere == []
    assert "url(" not in html.split("</style>")[0].split("<style>")[1]
    assert "connect-src &#39;none&#39;" in html
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    assert set(figures) == set(page_of(trained).figures)


def test_names_from_files_are_escaped(tmp_path: Path, page_of: Callable[..., Page]) -> None:
    run = RunDir(detector(tmp_path, evil=EVIL))
    run.write_config({"recipe": {"name": EVIL, "model": {"name": EVIL}, "data": {"source": EVIL}}, EVIL: EVIL})
    mistake = Mistake(image=EVIL, truth=0, taken_for=7, score=0.9, truth_score=0.1, jpeg='"><script>evil()</script>')
    mistakes = Mistakes(classes=(EVIL, "b"), samples=(3, 3), correct=(1, 3), confused=((0, 1, 2),), mistakes=(mistake,))
    run.write_prediction("mistakes", encode(mistakes))
    html = page_of(run.path).html()
    assert "<script>window.evil" not in html
    assert "<script>evil" not in html
    assert "<img src=x" not in html
    assert html.count("<script") == 2
    assert "&lt;script&gt;window.evil" in html


def test_a_damaged_file_of_a_run_is_named_and_the_rest_of_the_page_is_made(
    tmp_path: Path, page_of: Callable[..., Page]
) -> None:
    run = RunDir(detector(tmp_path))
    damaged = [run.path / name for name in ("predictions/examples.json", "environment.json", "run.json", "bench.json")]
    for file in damaged:
        file.write_text('[{"image": 5}]')
    page = page_of(run.path)
    assert {"glance", "training", "detection"} <= {s.name for s in page.sections}
    html = page.html()
    assert [file for file in damaged if f"Cannot read {file}" not in html] == []


def test_a_bug_in_a_section_is_not_reported_as_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(subjects: list[Subject]) -> Section | None:
        raise KeyError("a programming error")

    monkeypatch.setattr("vernier.report.page.build.SECTIONS", (faulty,))
    with pytest.raises(KeyError, match="a programming error"):
        build(collect([detector(tmp_path)]))
