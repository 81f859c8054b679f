"""Published tables: what is predicted for them, and whether the range that other systems give covers them."""

import math

import pytest

from vernier.measure.planning.published import (
    LEVEL,
    PublishedSpeed,
    check_rows,
    errors_by_system,
    predict_published,
    published_shares,
    published_speeds,
)


def _row(system: str, model: str, precision: str, devices: int) -> PublishedSpeed:
    (row,) = [
        r
        for r in published_speeds()
        if r.system.startswith(system)
        and r.model.startswith(model)
        and (r.precision, r.devices) == (precision, devices)
    ]
    return row


def test_bases_are_those_of_the_same_table() -> None:
    eight = _row("DGX-1V, NVIDIA", "resnet50", "mixed", 8)
    assert (eight.base_images_per_s, eight.images_per_s, eight.device_batch) == (747.3, 5815.8, 256)
    assert _row("DGX-2V, NVIDIA", "resnet50", "fp32", 16).base_images_per_s == 363.1  # of the DGX-1 of that document
    assert _row("HLS-1, Habana, SynapseAI", "resnet50, Gaudi, TensorFlow Keras, SGD", "mixed", 32).hosts == 4
    assert _row("DGX-2, MXNet", "ResNet-50", "fp32", 16).hosts == 1


def test_the_model_alone_is_right_in_full_precision_and_too_high_in_mixed_precision() -> None:
    full, mixed = (_row("DGX A100, NVIDIA DeepLearningExamples 2021", "resnet50", p, 8) for p in ("tf32", "mixed"))
    assert predict_published(full) / full.images_per_s == pytest.approx(1.014, abs=0.005)
    assert predict_published(mixed) / mixed.images_per_s == pytest.approx(1.163, abs=0.005)


def test_the_range_covers_nine_in_ten_of_the_systems_that_were_left_out() -> None:
    rows = check_rows()
    assert len(rows) == len(published_speeds()) > 100
    assert sum(row.in_range for row in rows) / len(rows) >= LEVEL
    for several in (False, True):
        group = [row for row, speed in zip(rows, published_speeds(), strict=True) if (speed.hosts > 1) == several]
        assert sum(row.in_range for row in group) / len(group) >= LEVEL


def test_the_mixed_precision_of_2021_is_in_the_range_of_other_systems() -> None:
    rows = [r for r in check_rows() if "NVIDIA DeepLearningExamples 2021" in r.system and "mixed" in r.what]
    assert len(rows) == 9
    assert all(row.in_range for row in rows)
    assert max(row.error_percent for row in rows) < 12.5  # the model alone: +12 to +20 %


def test_a_system_has_no_part_in_its_own_prediction() -> None:
    everything = published_shares(2, 16, None)
    without = published_shares(2, 16, None, "DGX-1, TensorFlow 2")
    assert without.typical > everything.typical
    assert published_shares(2, 16, None, "no such system") == everything


def test_shares_by_precision_and_hosts() -> None:
    full, mixed, several = (
        published_shares(1, 8, "tf32"),
        published_shares(1, 8, "bf16"),
        published_shares(4, 32, "tf32"),
    )
    assert full.typical > mixed.typical > several.typical
    assert full.high / full.low < mixed.high / mixed.low < several.high / several.low
    assert published_shares(1, 8, "fp16") == mixed
    assert published_shares(1, 1, None).low == published_shares(1, 1, None).high == 1
    assert all(s.low < s.typical < s.high < 1.06 for s in (full, mixed, several, published_shares(1, 8, None)))


def test_each_system_counts_once() -> None:
    """Student's interval over systems, computed here by hand for several hosts."""
    by_system: dict[str, list[float]] = {}
    for row in published_speeds():
        if row.hosts > 1:
            by_system.setdefault(row.system, []).append(math.log(row.images_per_s / predict_published(row)))
    means = [sum(values) / len(values) for values in by_system.values()]
    assert published_shares(2, 16, None).typical == pytest.approx(math.exp(sum(means) / len(means)))


def test_errors_by_system() -> None:
    systems = errors_by_system()
    assert sum(s.rows for s in systems) == len(check_rows())
    assert sum(s.in_range for s in systems) == sum(r.in_range for r in check_rows())
    assert [s.highest_percent for s in systems] == sorted(s.highest_percent for s in systems)
