"""The line that says what ran."""

from dataclasses import replace

from tests.examples import RAN
from vernier.records.codec import decode, encode
from vernier.records.what_ran import NOT_RECORDED, WhatRan, line_of


def test_the_line_names_everything_that_ran() -> None:
    assert RAN.line().split(" · ") == [
        "train resnet50 (25.6 M parameters, 4.09 GMAC)",
        "224 px",
        "1,000 classes",
        "batch 32 x 2 devices",
        "synthetic, random pixels from a pool in memory",
        "fp32 eager",
        "cpu (AMD EPYC), 4 threads",
        "torch 2.13.0, Vernier 0.3.0 (abc1234)",
        "2026-11-16",
    ]


def test_sizes_of_a_whole_training_are_in_the_line() -> None:
    assert "160 to 192 px, evaluated at 256 px" in replace(RAN, image_px=192, start_px=160, eval_px=256).line()


def test_a_smoke_run_begins_with_that() -> None:
    assert replace(RAN, smoke=True).line().startswith("SMOKE RUN, its figures mean nothing: train resnet50")


def test_one_line_for_several_lists_what_differs() -> None:
    line = line_of([RAN, replace(RAN, batch_per_device=64), None])
    assert "batch 32, 64 x 2 devices" in line
    assert line.count("resnet50") == 1


def test_old_results_say_that_nothing_was_recorded() -> None:
    assert line_of([None]) == NOT_RECORDED


def test_it_is_read_back_as_written() -> None:
    assert decode(WhatRan, encode(RAN)) == RAN
