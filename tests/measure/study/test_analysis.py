"""Analysis of a study: the published data's figures, fleets with known slow devices, and what cannot be said."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from vernier.measure.study.analysis import (
    Row,
    Table,
    analyze,
    correlations,
    devices,
    ordinary,
    variance_split,
    variations,
)
from vernier.report.study.tables import read_table

REPO = Path(__file__).resolve().parents[3]


def benchmark(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", REPO / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(values: dict[str, list[float]], **changes: object) -> Table:
    rows = tuple(Row(device=d, repeat=str(k), value=v) for d, mine in values.items() for k, v in enumerate(mine))
    return Table(**{"rows": rows, "unit": "s", "what": "median iteration", **changes})  # type: ignore[arg-type]


def test_the_resnet_of_the_sc22_group(real_data: Callable[[str], Path]) -> None:
    found = analyze(read_table([real_data("gpu-variability") / "resnet-longhorn-agg.csv"]))
    assert (found["runs"], found["devices_measured"], found["unit"], found["workload"]) == (1404, 336, "ms", "resnet")
    assert found["median"] == pytest.approx(117.53, abs=0.005)
    assert found["quartiles"] == pytest.approx([114.84, 121.42], abs=0.005)
    over_runs, over_devices = (found["variation_percent"][k] for k in ("over_runs", "over_device_medians"))
    assert over_runs["fence"] == pytest.approx(22.41, abs=0.005)
    assert over_runs["whisker"] == pytest.approx(20.5, abs=0.05)
    assert (over_devices["fence"], over_devices["whisker"]) == pytest.approx((12.12, 11.38), abs=0.005)
    assert found["outliers"]["beyond_fence"] == {"slow": 17, "fast": 0}
    assert found["straggler"]["cost"] == pytest.approx(1.120, abs=0.0005)
    assert found["straggler"]["slowest_run_over_median"] == pytest.approx(3.57, abs=0.005)
    pearson, spearman = (found["correlation"][k]["perf"] for k in ("pearson", "spearman"))
    assert [pearson[k] for k in ("freq", "power", "temp")] == pytest.approx([-0.007, -0.485, -0.138], abs=0.0006)
    assert [spearman[k] for k in ("freq", "power", "temp")] == pytest.approx([-0.025, -0.542, -0.081], abs=0.0006)
    assert found["variance"]["undisturbed_runs"]["share_between_devices"]["high"] < 0.5  # mostly noise of repeats


def test_the_sgemm_of_the_sc22_group(real_data: Callable[[str], Path]) -> None:
    found = analyze(read_table([real_data("gpu-variability") / "sgemm-longhorn-agg.csv"]))
    assert (found["runs"], found["devices_measured"]) == (11087, 392)
    assert found["median"] == pytest.approx(2439.6, abs=0.05)
    assert found["variation_percent"]["over_runs"]["fence"] == pytest.approx(8.78, abs=0.005)
    over_devices = found["variation_percent"]["over_device_medians"]
    assert (over_devices["fence"], over_devices["whisker"]) == pytest.approx((9.25, 8.89), abs=0.005)
    assert found["outliers"]["beyond_fence"] == {"slow": 5, "fast": 1}
    assert found["straggler"]["cost"] == pytest.approx(1.203, abs=0.0005)
    assert found["correlation"]["pearson"]["perf"]["freq"] == pytest.approx(-0.935, abs=0.0005)
    assert found["correlation"]["spearman"]["perf"]["freq"] == pytest.approx(-0.981, abs=0.0005)
    assert found["variance"]["all_runs"]["share_between_devices"]["low"] > 0.9  # here it is the devices
    assert any("2284 of 11087 rows are exact copies" in n for n in found["notes"])


def test_slow_virtual_devices_are_found_and_ordinary_ones_left_alone() -> None:
    found = benchmark("virtual_devices").simulate(fleets=60, count=32, repeats=5, seed=2)
    assert found["slow_devices"] > 100
    assert found["found_share"] == 1
    assert found["false_alarm_share"] <= 0.01


def test_variations_by_hand() -> None:
    found = variations(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    assert found["fence"] == pytest.approx(100 * (7 + 1) / 3)  # Q1 2, Q3 4
    assert found["whisker"] == pytest.approx(100 * 3 / 3)
    assert found["range"] == pytest.approx(100 * 99 / 3)
    assert set(variations(np.array([1.0])).values()) == {None}


def test_the_variance_split_recovers_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    groups = [np.exp(rng.normal(0, 0.03) + rng.normal(0, 0.01, 6)) for _ in range(150)]
    found = variance_split(groups)["all_runs"]
    assert found["between_devices"]["low"] < 3 < found["between_devices"]["high"]
    assert found["between_repeats"]["low"] < 1 < found["between_repeats"]["high"]
    assert found["share_between_devices"]["low"] < 0.9 < found["share_between_devices"]["high"]


def test_rates_are_slow_when_low() -> None:
    rng = np.random.default_rng(0)
    values = {f"d{i}": list(100 * np.exp(rng.normal(0, 0.005, 4)) * (0.9 if i == 3 else 1)) for i in range(12)}
    found = analyze(table(values, unit="img/s", slow_is_high=False))
    assert found["pull"] == ["d3"]
    assert found["devices"][0]["device"] == "d3"
    assert found["devices"][0]["beyond_fence"] == "slow"
    assert found["straggler"]["cost"] == pytest.approx(1 / 0.9, rel=0.02)


def test_one_device_one_repeat_two_devices() -> None:
    alone = analyze(table({"a": [1.0, 1.1, 1.2]}))
    assert alone["variance"]["missing"] == "one device only"
    assert "one device: nothing to compare it with" in alone["notes"]
    once = analyze(table({f"d{i}": [1.0 + i / 100] for i in range(8)}))
    assert "one repeat a device" in once["variance"]["missing"]
    assert once["devices"][0]["low"] is None
    pair = analyze(table({"a": [1.00, 1.01, 0.99, 1.0], "b": [1.20, 1.21, 1.19, 1.20]}))
    assert pair["pull"] == []
    assert "2 devices" in " ".join(pair["notes"])
    assert next(d for d in pair["devices"] if d["device"] == "b")["sure_slow"]


def test_a_constant_sensor_has_no_correlation() -> None:
    rows = tuple(
        Row(device=f"d{i}", repeat="0", value=1.0 + i, sensors={"freq": 1530.0, "power": None, "temp": 40.0 + i})
        for i in range(6)
    )
    found = correlations(Table(rows=rows, unit="s", what="x"))
    assert found["pearson"]["perf"] == {"perf": pytest.approx(1), "freq": None, "power": None, "temp": pytest.approx(1)}
    assert (found["not_measured"], found["constant"]) == (["power"], ["freq"])


def test_what_is_ordinary_ignores_outliers() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(0, 1, 400)
    found = ordinary(np.concatenate([clean, np.full(40, 50.0)]))
    assert found.centre == pytest.approx(0, abs=0.15)
    assert found.sd == pytest.approx(1, abs=0.1)
    assert found.p_above(found.limit_above(0.01)) == pytest.approx(0.01, rel=0.02)


def test_every_device_has_a_normalised_value() -> None:
    found = devices(table({"a": [2.0, 2.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}))
    assert [(d["device"], d["normalised"]) for d in found] == [("a", 2.0), ("b", 1.0), ("c", 1.0)]
