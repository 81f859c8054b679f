"""Pages, and what a notebook shows."""

import re
from html import unescape
from pathlib import Path

import pytest

import vernier as v
from tests.report.bench_results import bench_run
from vernier.api.display import frame


def test_one_page_about_runs_benchmarks_and_folders(tiny_run: v.Run, tmp_path: Path) -> None:
    bench = bench_run(tmp_path / "bench")
    page = v.report([tiny_run, str(bench)], out=tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    assert 'id="benchmarks"' in page.read_text()
    assert v.report(tiny_run) == tiny_run.path / "report.html"
    with pytest.raises(v.ConfigError):
        v.report([])
    with pytest.raises(v.ConfigError, match="/no/such"):
        v.report(["/no/such"])
    with pytest.raises(v.ConfigError, match=r"x\.html"):
        v.report(tiny_run, out=tmp_path / "page.html" / "x.html")


def test_a_frame_holds_a_whole_page_of_the_chosen_sections(tiny_run: v.Run) -> None:
    html = frame("caption & more", [tiny_run.path], ("training", "glance"))
    assert html.startswith('<pre style="white-space:pre-wrap">caption &amp; more</pre><iframe srcdoc="')
    (page,) = re.findall(r'srcdoc="([^"]*)"', html)
    inside = unescape(page)
    assert inside.startswith("<!doctype html>")
    assert "Content-Security-Policy" in inside
    assert re.findall(r'<section[^>]* id="(\w+)"', inside) == ["training", "glance"]
    assert '"chart":{"type":"lines"' in inside


def test_where_there_is_nothing_to_show_the_caption_stands_alone(tmp_path: Path) -> None:
    assert frame("a run", [tmp_path / "gone"], ("training",)) == ('<pre style="white-space:pre-wrap">a run</pre>')
