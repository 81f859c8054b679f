import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.report.page.conftest import EVIL, detector
from vernier.report.page.build import Page, build
from vernier.report.page.collect import Subject, collect
from vernier.report.page.figures import Section
from vernier.report.page.html import table, tag
from vernier.store import RunDir

LIMIT_BYTES = 6_000_000
Vernier = Callable[..., Done]


def test_the_page_is_one_file_that_asks_for_nothing(trained: Path, page_of: Callable[..., Page]) -> None:
    html = page_of(trained).html()
    assert len(html.encode()) < LIMIT_BYTES
    elsewhere = re.findall(r"""(?:src|href|action)=["']?(?!data:|#)([^"'\s>]+)""", html)
    assert elsewhere == []
    assert "url(" not in html.split("</style>")[0].split("<style>")[1]
    assert "connect-src &#39;none&#39;" in html
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    assert set(figures) == set(page_of(trained).figures)


def test_text_of_others_stays_text(tmp_path: Path, page_of: Callable[..., Page]) -> None:
    run = RunDir(detector(tmp_path, evil=EVIL))
    run.write_config({"recipe": {"name": EVIL, "model": {"name": EVIL}, "data": {"source": EVIL}}, EVIL: EVIL})
    run.write_prediction("mistakes", {
        "classes": [EVIL, "b"], "samples": [3, 3], "correct": [1, 3], "confused": [[0, 1, 2]],
        "mistakes": [{"sample": 0, "image": EVIL, "truth": 0, "taken_for": 7, "score": 0.9, "truth_score": 0.1, "jpeg": '"><script>evil()</script>'}],
    })  # fmt: skip
    html = page_of(run.path).html()
    assert "<script>window.evil" not in html
    assert "<script>evil" not in html
    assert "<img src=x" not in html
    assert html.count("<script") == 2
    assert "&lt;script&gt;window.evil" in html


def test_a_damaged_file_is_named(vernier_here: Vernier, tmp_path: Path) -> None:
    damaged = tmp_path / "bench.json"
    damaged.write_text('{"rounds": [], "rows": [{"arm": "x"}]}')
    done = vernier_here("report", str(damaged), "-o", str(tmp_path / "page.html"))
    assert done.code == 2
    assert f"Cannot read {damaged}" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_damaged_file_of_a_run_is_named_and_the_rest_of_the_page_is_made(
    tmp_path: Path, page_of: Callable[..., Page]
) -> None:
    run = RunDir(detector(tmp_path))
    (run.path / "predictions" / "examples.json").write_text('[{"image": 5}]')
    page = page_of(run.path)
    assert {"glance", "training", "detection"} <= {s.name for s in page.sections}
    assert str(run.path / "predictions" / "examples.json") in page.html()


def test_a_bug_in_a_section_is_not_reported_as_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(subjects: list[Subject]) -> Section | None:
        raise KeyError("a programming error")

    monkeypatch.setattr("vernier.report.page.build.SECTIONS", (faulty,))
    with pytest.raises(KeyError, match="a programming error"):
        build(collect([detector(tmp_path)]))


def test_attributes_and_cells_are_escaped() -> None:
    assert tag("p", '<"', title='"x') == '<p title="&#34;x">&lt;&#34;</p>'
    assert "<b>" not in table("t", ["<b>"], [["<b>"]], "<b>")


def test_the_command_writes_the_page_where_it_says(vernier_here: Vernier, trained: Path, tmp_path: Path) -> None:
    said = vernier_here("report", str(trained), "-o", str(tmp_path / "new" / "page.html"), "--json")
    assert said.code == 0, said.err
    document = said.json()
    assert Path(document["page"]).stat().st_size == document["bytes"] < LIMIT_BYTES
    assert document["runs"][0]["status"] == "finished"
    plain = vernier_here("report", str(trained))
    assert plain.code == 0
    assert (trained / "report.html").is_file()
    assert "At a glance, Training" in plain.out
    (trained / "report.html").unlink()


def test_a_profiled_run_links_to_its_trace(vernier_here: Vernier, tiny: list[str], tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "8", "--profile-steps", "4:5", "--train-only")
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    assert vernier_here("report", str(run)).code == 0
    html = (run / "report.html").read_text()
    link = re.search(r'<a href="(traces/trace[^"]+)"', html)
    assert link is not None
    assert (run / link[1]).is_file()
    (subject,) = collect([run])
    assert len(subject.profiles[0].kernels) > 10
    assert "kernels and operations" in html


def test_wrong_use_is_told_what_would_work(vernier_here: Vernier, trained: Path, tmp_path: Path) -> None:
    for arguments, words in [
        (("report",), "No runs given"),
        (("report", str(tmp_path / "none")), "does not exist"),
        (("report", str(tmp_path)), "not a run directory"),
        (("report", str(trained), "--port", "80"), "--port needs --watch"),
        (("report", str(trained), "--watch", "-o", "x.html"), "Leave out one"),
        (("report", str(trained), "--watch", "--port", "99999"), "Cannot listen on port 99999"),
        (("report", str(trained), "-o", "/proc/none/x.html"), "Cannot write"),
    ]:
        done = vernier_here(*arguments)
        assert done.code == 2, arguments
        assert words in done.err
