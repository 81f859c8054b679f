"""Analysis of a study: the published data's figures, fleets with known slow devices, and what cannot be said."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import load_benchmark
from tests.measure.study.fleets import table
from vernier.measure.study.analysis import (
    Measurement,
    Table,
    analyze,
    correlations,
    fit_inliers,
    judge_devices,
    limit_above,
    p_above,
    undisturbed,
    variance_split,
    variations,
)
from vernier.records.codec import decode, encode
from vernier.records.study import SlowFastCounts, StudyAnalysis
from vernier.report.study.tables import read_table


def test_the_resnet_of_the_sc22_group(real_data: Callable[[str], Path]) -> None:
    analysis = analyze(read_table([real_data("gpu-variability") / "resnet-longhorn-agg.csv"]))
    assert (analysis.runs, analysis.devices_measured, analysis.unit, analysis.workload) == (1404, 336, "ms", "resnet")
    assert analysis.median == pytest.approx(117.53, abs=0.005)
    assert analysis.quartiles == pytest.approx((114.84, 121.42), abs=0.005)
    over_runs, over_devices = (getattr(analysis.variation_percent, k) for k in ("over_runs", "over_device_medians"))
    assert over_runs["fence"] == pytest.approx(22.41, abs=0.005)
    assert over_runs["whisker"] == pytest.approx(20.5, abs=0.05)
    assert (over_devices["fence"], over_devices["whisker"]) == pytest.approx((12.12, 11.38), abs=0.005)
    assert analysis.outliers.beyond_fence == SlowFastCounts(slow=17, fast=0)
    assert analysis.straggler.cost == pytest.approx(1.120, abs=0.0005)
    assert analysis.straggler.slowest_run_over_median == pytest.approx(3.57, abs=0.005)
    pearson, spearman = (getattr(analysis.correlation, k)["step_time"] for k in ("pearson", "spearman"))
    assert [pearson[k] for k in ("freq", "power", "temp")] == pytest.approx([-0.007, -0.485, -0.138], abs=0.0006)
    assert [spearman[k] for k in ("freq", "power", "temp")] == pytest.approx([-0.025, -0.542, -0.081], abs=0.0006)
    assert analysis.variance.undisturbed_runs is not None
    assert (analysis.variance.undisturbed_runs.share_between_devices.high or 1) < 0.5  # mostly noise of repeats


def test_the_sgemm_of_the_sc22_group(real_data: Callable[[str], Path]) -> None:
    analysis = analyze(read_table([real_data("gpu-variability") / "sgemm-longhorn-agg.csv"]))
    assert (analysis.runs, analysis.devices_measured) == (11087, 392)
    assert analysis.median == pytest.approx(2439.6, abs=0.05)
    assert analysis.variation_percent.over_runs["fence"] == pytest.approx(8.78, abs=0.005)
    over_devices = analysis.variation_percent.over_device_medians
    assert (over_devices["fence"], over_devices["whisker"]) == pytest.approx((9.25, 8.89), abs=0.005)
    assert analysis.outliers.beyond_fence == SlowFastCounts(slow=5, fast=1)
    assert analysis.straggler.cost == pytest.approx(1.203, abs=0.0005)
    assert analysis.correlation.pearson["step_time"]["freq"] == pytest.approx(-0.935, abs=0.0005)
    assert analysis.correlation.spearman["step_time"]["freq"] == pytest.approx(-0.981, abs=0.0005)
    assert analysis.variance.all_runs is not None
    assert (analysis.variance.all_runs.share_between_devices.low or 0) > 0.9  # here it is the devices
    assert any("2284 of 11087 rows are exact copies" in n for n in analysis.notes)


def test_slow_virtual_devices_are_called_slow_and_normal_ones_are_not() -> None:
    analysis = load_benchmark("virtual_devices").simulate(fleets=60, count=32, repeats=5, seed=2)
    assert analysis["slow_devices"] > 100
    assert analysis["found_share"] == 1
    assert analysis["false_alarm_share"] <= 0.01


def test_variations_by_hand() -> None:
    analysis = variations(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    assert analysis["fence"] == pytest.approx(100 * (7 + 1) / 3)  # Q1 2, Q3 4
    assert analysis["whisker"] == pytest.approx(100 * 3 / 3)
    assert analysis["range"] == pytest.approx(100 * 99 / 3)
    assert set(variations(np.array([1.0])).values()) == {None}


def test_the_variance_split_recovers_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    groups = [np.exp(rng.normal(0, 0.03) + rng.normal(0, 0.01, 6)) for _ in range(150)]
    parts = variance_split(groups).all_runs
    assert parts is not None
    for part, truth in ((parts.between_devices, 3), (parts.between_repeats, 1), (parts.share_between_devices, 0.9)):
        assert (part.low or 9) < truth < (part.high or 0)


def test_rates_are_slow_when_low() -> None:
    rng = np.random.default_rng(0)
    values = {f"d{i}": list(100 * np.exp(rng.normal(0, 0.005, 4)) * (0.9 if i == 3 else 1)) for i in range(12)}
    analysis = analyze(table(values, unit="img/s", slow_is_high=False))
    assert analysis.pull == ("d3",)
    assert analysis.devices[0].device == "d3"
    assert analysis.devices[0].beyond_fence == "slow"
    assert analysis.straggler.cost == pytest.approx(1 / 0.9, rel=0.02)


def test_one_device_one_repeat_two_devices() -> None:
    alone = analyze(table({"a": [1.0, 1.1, 1.2]}))
    assert alone.variance.missing == "one device only"
    assert "one device: nothing to compare it with" in alone.notes
    once = analyze(table({f"d{i}": [1.0 + i / 100] for i in range(8)}))
    assert "one repeat per device" in (once.variance.missing or "")
    assert once.devices[0].low is None
    pair = analyze(table({"a": [1.00, 1.01, 0.99, 1.0], "b": [1.20, 1.21, 1.19, 1.20]}))
    assert pair.pull == ()
    assert "2 devices" in " ".join(pair.notes)
    assert next(d for d in pair.devices if d.device == "b").sure_slow


def test_a_constant_sensor_has_no_correlation() -> None:
    rows = tuple(
        Measurement(
            device=f"d{i}", repeat="0", value=1.0 + i, sensors={"freq": 1530.0, "power": None, "temp": 40.0 + i}
        )
        for i in range(6)
    )
    analysis = correlations(Table(rows=rows, unit="s", what="x"))
    assert analysis.pearson["step_time"] == {
        "step_time": pytest.approx(1),
        "freq": None,
        "power": None,
        "temp": pytest.approx(1),
    }
    assert (analysis.not_measured, analysis.constant) == (("power",), ("freq",))


def test_inliers_ignore_outliers() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(0, 1, 400)
    analysis = fit_inliers(np.concatenate([clean, np.full(40, 50.0)]))
    assert analysis.centre == pytest.approx(0, abs=0.15)
    assert analysis.sd == pytest.approx(1, abs=0.1)
    assert p_above(analysis, limit_above(analysis, 0.01)) == pytest.approx(0.01, rel=0.02)


def test_every_device_has_a_normalised_value() -> None:
    analysis = judge_devices(table({"a": [2.0, 2.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}))
    assert [(d.device, d.normalised) for d in analysis] == [("a", 2.0), ("b", 1.0), ("c", 1.0)]


def test_an_analysis_survives_its_json() -> None:
    analysis = analyze(table({f"d{i}": [1.0 + i / 100, 1.01 + i / 100] for i in range(6)}))
    assert decode(StudyAnalysis, json.loads(json.dumps(encode(analysis)))) == analysis


def test_a_run_far_from_the_others_of_its_device_is_disturbed() -> None:
    dice = np.random.default_rng(1)
    groups = [np.exp(0.01 * dice.standard_normal(8)) * (1 + device / 10) for device in range(6)]
    groups[2][5] *= 1.5
    calm = undisturbed(groups)
    assert [(d, i) for d, flags in enumerate(calm) for i, ok in enumerate(flags) if not ok] == [(2, 5)]
    assert all(flags.all() for flags in undisturbed([np.array([1.0]), np.array([5.0])]))  # one repeat: nobody knows
