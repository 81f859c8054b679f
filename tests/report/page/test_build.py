"""The page: one file, with other people's text as text."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.page.conftest import EVIL, detector
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.records.codec import encode
from vernier.records.predictions import Mistake, Mistakes
from vernier.report.page.build import Page, _choose_file, build, write_page
from vernier.report.page.collect import collect
from vernier.report.page.figures import Content, Section, sections
from vernier.report.page.runs import Run
from vernier.report.page.subjects import Subject
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


def failing(subjects: list[Subject]) -> Content:
    """A section with a bug that one of the runs below shows."""
    if any("second" in str(s.path) for s in subjects):
        raise KeyError("a programming error")
    return Content(parts=[f"about {', '.join(s.name for s in subjects)}"])


def test_a_bug_in_a_section_is_named_and_the_rest_of_the_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_run(tmp_path / name, name, [0.1] * 20) for name in ("first", "second", "third")]
    odd = Section(title="Odd", order=0, of=Run, build=failing)
    monkeypatch.setattr("vernier.report.page.build.sections", lambda: {"odd": odd, **sections()})
    page = build(collect(paths))
    assert [s.name for s in page.sections][:3] == ["odd", "glance", "runs"]
    assert "about first, third" in page.sections[0].html
    reason = "This section could not be made for second: KeyError: &#39;a programming error&#39; (test_build.py, line "
    assert reason in page.sections[0].html
    assert page.html().count("could not be made") == 1
    assert "left out" not in page.html()  # those are words for damaged files
    assert reason in build(collect(paths[1:2])).html()


def test_a_page_about_a_run_needs_nothing_of_the_laboratory(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['vernier.lab'] = None\n"  # every import of it fails
        "from pathlib import Path; from vernier.report.page.build import write_page\n"
        f"page = write_page([Path({str(detector(tmp_path))!r})], Path({str(tmp_path / 'page.html')!r})).page\n"
        "print(*(s.name for s in page.sections)); print(page.top)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, top = done.stdout.split("\n", 1)
    assert names.split() == ["glance", "training", "detection", "environment"]
    assert "Could not be loaded: vernier.lab.page." in top


def test_the_file_is_the_named_one_or_lies_in_the_run_or_here(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", step_times(1, n=20))
    assert _choose_file([run], None) == run / "report.html"
    assert _choose_file([run, run], None) == Path("report.html")
    assert _choose_file([run], tmp_path) == tmp_path / "report.html"
    assert _choose_file([run], tmp_path / "x.html") == tmp_path / "x.html"


def test_a_page_is_written_with_its_folder_and_replaced_by_the_next(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "run", step_times(1, n=20))
    smoke = write_run(tmp_path / "runs", "smoke", step_times(1, n=20), limits__smoke=True)
    for _ in range(2):
        written = write_page([run.parent], tmp_path / "new" / "page.html")
    assert written.path.read_text().startswith("<!doctype html>")
    assert [subject.path for subject in written.subjects] == [run]
    assert written.left_out == (smoke,)
    with pytest.raises(ConfigError, match="Cannot write"):
        write_page([run], written.path / "inside.html")
