"""The first section: results, speed, warnings."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.report.page.conftest import text_of
from tests.report.run_dirs import step_times, write_run
from vernier.records.run import PublishedSpeed
from vernier.records.what_ran import line_of
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.report.page.sections.glance import _card as card_of
from vernier.report.page.sections.glance import _glance

PageOf = Callable[..., Page]


def test_a_result_has_its_interval_and_number_of_images(trained: Path, page_of: PageOf) -> None:
    (subject,) = collect([trained])
    text = text_of(page_of(trained).sections[0].html)
    assert f"top-1 {subject.figure('top1'):.0f} %" in text  # one image is 2 %
    assert "50 images" in text
    assert "img/s" in text


def test_a_card_has_what_ran_in_one_line_and_times_with_their_zone(trained: Path, page_of: PageOf) -> None:
    (subject,) = collect([trained])
    assert subject.recorded
    text = text_of(page_of(trained).sections[0].html)
    assert text_of(line_of(subject.ran)) in text
    assert re.search(r"started 20\d\d-\d\d-\d\d \d\d:\d\d UTC ended 20\d\d-", text)


def test_a_card_says_how_the_rate_stands_against_a_published_one(tmp_path: Path) -> None:
    (subject,) = collect([write_run(tmp_path, "v100", step_times(1, n=100))])
    speed = PublishedSpeed(
        images_per_s_total=5815.8,
        devices=8,
        device="V100 16 GB",
        batch_per_device=256,
        precision="fp16",
        where="DGX-1V",
        times_published=1.031,
    )
    card = text_of(card_of(replace(subject, summary=replace(subject.summary, published_speeds=(speed,)))))
    assert "1.031 times the published rate per device: 5,815.8 img/s on 8 x V100 16 GB" in card


def test_cards_of_several_runs_have_the_parts_in_which_they_differ_and_what_a_person_noted(tmp_path: Path) -> None:
    wide, narrow = (write_run(tmp_path, f"w{n}", step_times(n, n=50), recipe__model__width=n) for n in (32, 16))
    (wide / "notes.txt").write_text("#baseline for the talk\n")
    section = _glance(collect([wide, narrow]))
    assert section is not None
    cards = [text_of(card) for card in str(section.html).split("<article")[1:]]
    assert "network resnet50, width 32" in cards[0]
    assert "network resnet50, width 16" in cards[1]
    assert "#baseline for the talk" in cards[0]
    assert not any("image size" in card for card in cards)


def test_facts_without_a_value_are_left_out(tmp_path: Path) -> None:
    (subject,) = collect([write_run(tmp_path, "run", step_times(1, n=100))])
    assert None in dict(subject.facts()).values() or "" in dict(subject.facts()).values()
    assert "<dd></dd>" not in re.sub(r"\s", "", card_of(subject))
