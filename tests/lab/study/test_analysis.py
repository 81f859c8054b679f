"""Analysis of a study: the published data's figures, fleets with known slow devices, and what cannot be said."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import load_benchmark
from tests.lab.study.fleets import table
from vernier.lab.reading.tables import read_table
from vernier.lab.study.analysis import (
    Measurement,
    Table,
    analyze,
    correlations,
    judge_devices,
    variations,
)
from vernier.lab.study.records import SlowFastCounts, StudyAnalysis
from vernier.records.codec import decode, encode


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
    assert analysis["certain_share"] > 0.7
    assert analysis["false_alarm_share"] <= 0.01


def test_variations_by_hand() -> None:
    analysis = variations(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    assert analysis["fence"] == pytest.approx(100 * (7 + 1) / 3)  # Q1 2, Q3 4
    assert analysis["whisker"] == pytest.approx(100 * 3 / 3)
    assert analysis["range"] == pytest.approx(100 * 99 / 3)
    assert set(variations(np.array([1.0])).values()) == {None}


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
    different = next(d for d in pair.devices if d.device == "b")
    assert (different.stands_out, different.sure_slow) == ("slow", False)


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


def test_every_device_has_a_normalised_value() -> None:
    analysis = judge_devices(table({"a": [6.0, 6.0], "b": [3.0, 3.0], "c": [3.0, 3.0]}))
    assert [(d.device, d.normalised) for d in analysis] == [("a", 2.0), ("b", 1.0), ("c", 1.0)]


def test_a_device_beyond_the_fences_is_an_outlier_on_its_side() -> None:
    """Medians of 1.00 to 1.08: quartiles 1.02 and 1.06, so the fences are 0.96 and 1.12."""
    times = {f"d{i}": [1.00 + i / 100] * 2 for i in range(9)}
    beyond = {d.device: d.beyond_fence for d in judge_devices(table({**times, "slow": [1.3] * 2, "fast": [0.8] * 2}))}
    assert (beyond.pop("slow"), beyond.pop("fast")) == ("slow", "fast")
    assert set(beyond.values()) == {None}


def test_an_analysis_survives_its_json() -> None:
    analysis = analyze(table({f"d{i}": [1.0 + i / 100, 1.01 + i / 100] for i in range(6)}))
    assert decode(StudyAnalysis, json.loads(json.dumps(encode(analysis)))) == analysis


def test_slow_for_sure_by_too_little_to_matter_is_not_removed() -> None:
    rng = np.random.default_rng(0)
    values = {f"d{i:02d}": (1 + 0.0003 * rng.standard_normal(5)).tolist() for i in range(30)}
    values["d04"] = [v * 1.005 for v in values["d04"]]
    analysis = analyze(table(values))
    slowest = analysis.devices[0]
    assert (slowest.device, slowest.sure_slow, slowest.matters) == ("d04", True, False)
    assert (analysis.pull, analysis.matter_percent) == ((), 1.0)
    assert analyze(table(values), matter=0.003).pull == ("d04",)


def test_chances_are_ordered_however_small() -> None:
    rng = np.random.default_rng(0)
    values = {f"d{i:03d}": (1 + 0.002 * rng.standard_normal(20)).tolist() for i in range(200)}
    for i in range(8):
        values[f"d{i:03d}"] = [v * (1.05 + i / 50) for v in values[f"d{i:03d}"]]
    devices = analyze(table(values)).devices
    chances = [d.p_slow for d in devices]
    assert chances == sorted(chances)
    assert 0 < chances[0] < 1e-20
    assert [d.sure_slow for d in devices[:9]] == [True] * 8 + [False]


def test_too_few_repeats_to_be_certain_are_said() -> None:
    rng = np.random.default_rng(0)
    two = {f"d{i}": [1.0 + 0.01 * rng.standard_normal() for _ in range(2)] for i in range(5)}
    two["d3"] = [1.3, 1.3]
    analysis = analyze(table(two))
    assert not analysis.devices[0].sure_slow
    assert any(
        "2 repeats on each of 5 devices are too few" in n and "3 repeats are enough" in n for n in analysis.notes
    )


def test_devices_are_compared_within_few_hosts_that_differ() -> None:
    rng = np.random.default_rng(1)
    rows = tuple(
        Measurement(device=f"h{h}-{d}", repeat=str(k), value=1 + 0.1 * h + 0.004 * rng.standard_normal(), host=f"h{h}")
        for h in range(3)
        for d in range(4)
        for k in range(4)
    )
    slow = tuple(replace(r, value=r.value * 1.05) if r.device == "h0-2" else r for r in rows)
    analysis = analyze(Table(rows=slow, unit="s", what="x"))
    assert analysis.pull == ("h0-2",)  # although every device of the third host is slower
    assert any("3 hosts are too few" in note for note in analysis.notes)
    assert analyze(Table(rows=tuple(replace(r, host="") for r in slow), unit="s", what="x")).pull == ()


def test_a_warm_cabinet_is_named_as_a_whole_and_its_slow_device_is_still_found() -> None:
    rng = np.random.default_rng(2)
    rows = [
        Measurement(
            device=f"{cabinet}-{host}-{device}",
            repeat=str(repeat),
            value=math.exp(own + rng.normal(0, 0.008)),
            host=f"{cabinet}-{host}",
            cabinet=cabinet,
        )
        for cabinet, warmer in (("c0", 0.04), ("c1", 0.0), ("c2", 0.0), ("c3", 0.0))
        for host in range(4)
        for device in range(4)
        for own in [rng.normal(warmer, 0.006) + 0.1 * (cabinet == "c0" and host == device == 0)]
        for repeat in range(5)
    ]
    result = analyze(Table(rows=tuple(rows), unit="s", what="median iteration"))
    assert result.pull == ("c0-0-0",)
    assert {d.device[:2] for d in result.devices if d.whole_cabinet} == {"c0"}
    assert sum(bool(d.whole_cabinet) for d in result.devices) == 15
    assert any("c0 is" in note and "as a whole cabinet" in note for note in result.notes)
