"""A fleet's baseline and the machines it accepts or rejects."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import load_benchmark
from tests.lab.study.fleets import Values, machine, table
from vernier.errors import ConfigError
from vernier.lab.study.baseline import (
    check,
    fit_inliers,
    learn,
    limit_above,
    p_above,
    read_baseline,
    write_baseline,
)
from vernier.records.codec import encode


def _fleet(rng: np.random.Generator, devices: int = 64) -> Values:
    return machine(rng, devices=devices)


def test_slow_machines_are_rejected_and_normal_ones_accepted() -> None:
    rng = np.random.default_rng(5)
    learned = learn(table(_fleet(rng)))
    verdicts = [check(learned, table(machine(rng))).accepted for _ in range(300)]
    assert np.mean(verdicts) >= 0.97
    assert np.mean([check(learned, table(machine(rng, slow=1.08))).accepted for _ in range(100)]) <= 0.02


def test_the_reason_is_said() -> None:
    rng = np.random.default_rng(5)
    result = check(learn(table(_fleet(rng))), table(machine(rng, slow=1.10)))
    bad = next(d for d in result.devices if not d.accepted)
    assert bad.device == "gpu0"
    assert "% slower than the fleet's" in bad.reasons[0]


def test_unsteady_repeats_are_rejected_where_the_fleet_is_large_enough() -> None:
    rng = np.random.default_rng(5)
    unsteady = {"gpu0": [0.8, 1.0, 1.25, 1.0]}
    large = check(learn(table(_fleet(rng, 200))), table(unsteady))
    assert "repeats spread" in large.devices[0].reasons[0]
    small = check(learn(table(_fleet(rng, 20))), table(unsteady))
    assert small.accepted
    assert any("the spread of repeats is not judged" in note for note in small.notes)


def test_an_insensitive_baseline_says_what_it_can_detect() -> None:
    """Six devices that differ by a tenth accept one that is a quarter slower; that must be said."""
    rng = np.random.default_rng(5)
    fleet = {f"cpu{d}": np.exp(rng.normal(0, 0.1) + rng.normal(0, 0.1, 4)).tolist() for d in range(6)}
    result = check(learn(table(fleet)), table({"cpu9": [1.25, 1.25, 1.25, 1.25]}))
    assert result.accepted
    (note,) = [n for n in result.notes if "slower can be told" in n]
    least = float(note.split("more than ")[1].split(" %")[0]) / 100
    assert result.devices[0].limit == pytest.approx((1 + least) * np.exp(learn(table(fleet)).speed.centre), rel=0.01)
    assert not check(learn(table(fleet)), table({"cpu9": [1.2 * (1 + least)] * 4})).accepted
    sharp = check(learn(table(_fleet(rng))), table(machine(rng)))
    assert not any("can be told" in note for note in sharp.notes)


def test_a_fleets_own_slow_devices_do_not_make_slowness_normal() -> None:
    rng = np.random.default_rng(5)
    fleet = _fleet(rng)
    for device in list(fleet)[:8]:
        fleet[device] = [v * 1.15 for v in fleet[device]]
    learned = learn(table(fleet))
    assert len(learned.set_aside) == 8
    assert not check(learned, table(machine(rng, slow=1.10))).accepted


def test_what_was_not_measured_alike_is_not_compared() -> None:
    rng = np.random.default_rng(5)
    learned = learn(table(_fleet(rng), workload="sgemm"))
    with pytest.raises(ConfigError, match="workload is 'sgemm' in the baseline and 'resnet50' here"):
        check(learned, table(machine(rng), workload="resnet50"))
    with pytest.raises(ConfigError, match="unit is 's' in the baseline"):
        check(learned, table(machine(rng), workload="sgemm", unit="img/s", slow_is_high=False))


def test_times_in_another_unit_are_converted_with_a_note_and_a_wrong_unit_is_refused() -> None:
    rng = np.random.default_rng(3)
    learned, seconds = learn(table(machine(rng, devices=40))), machine(rng)
    milliseconds = {device: [1000 * v for v in values] for device, values in seconds.items()}
    expected, converted = check(learned, table(seconds)), check(learned, table(milliseconds, unit="ms"))
    assert converted.unit == "s"
    assert [d.median for d in converted.devices] == pytest.approx([d.median for d in expected.devices])
    assert "times in ms were converted to s, the unit of the baseline" in converted.notes
    with pytest.raises(ConfigError, match="the unit of one of them is wrong") as refused:
        check(learned, table(seconds, unit="ms"))
    assert refused.value.works == [("units", None)]


def test_too_little_to_learn_from() -> None:
    with pytest.raises(ConfigError, match="at least 5 devices"):
        learn(table({"a": [1.0, 1.1]}))
    with pytest.raises(ConfigError, match="needs repeats"):
        learn(table({f"d{i}": [1.0 + i] for i in range(9)}))


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    learned, path = learn(table(_fleet(np.random.default_rng(5)))), tmp_path / "b.json"
    write_baseline(path, learned)
    assert read_baseline(path) == learned
    with pytest.raises(ConfigError, match="There is no baseline"):
        read_baseline(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="Cannot write"):
        write_baseline(tmp_path / "none" / "b.json", learned)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"method": "other"}, "not a baseline"), ({"speed": None}, "damaged: speed"), ({"schema": 99}, "newer version")],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    learned, path = learn(table(_fleet(np.random.default_rng(5)))), tmp_path / "b.json"
    path.write_text(json.dumps({**encode(learned), **changes}))
    with pytest.raises(ConfigError, match=message):
        read_baseline(path)


def test_inliers_ignore_outliers() -> None:
    clean = np.random.default_rng(0).normal(0, 1, 400)
    inliers = fit_inliers(np.concatenate([clean, np.full(40, 50.0)]))
    assert inliers.centre == pytest.approx(0, abs=0.15)
    assert inliers.sd == pytest.approx(1, abs=0.1)
    assert p_above(inliers, limit_above(inliers, 0.01)) == pytest.approx(0.01, rel=0.02)
    chances = [p_above(inliers, value) for value in (10.0, 12.0, 15.0, 40.0)]
    assert chances == sorted(chances, reverse=True)
    assert 0 < chances[-1] < 1e-100


def test_slower_for_sure_by_too_little_to_matter_is_accepted_and_said() -> None:
    rng = np.random.default_rng(5)
    steady = {f"d{i}": (1 + 0.0003 * rng.standard_normal(5)).tolist() for i in range(40)}
    learned = learn(table(steady))
    result = check(learned, table({"new": [1.006] * 5}))
    assert result.accepted
    assert result.devices[0].remarks == ("certainly slower than the fleet, but by 0.60 % only",)
    assert not check(learned, table({"new": [1.006] * 5}), matter=0.005).accepted
    assert not check(learned, table({"new": [1.02] * 5})).accepted


def test_disturbed_runs_reject_no_healthy_machine() -> None:
    """One run in five is 5 to 30 % slow; the median of five runs is one of those in 6 % of devices."""
    rng = np.random.default_rng(7)

    def disturbed(values: Values) -> Values:
        return {
            name: [v * (1 + rng.uniform(0.05, 0.3)) if rng.random() < 0.2 else v for v in repeats]
            for name, repeats in values.items()
        }

    learned = learn(table(disturbed(machine(rng, repeats=5, devices=64))))
    verdicts = [check(learned, table(disturbed(machine(rng, repeats=5)))).accepted for _ in range(200)]
    assert np.mean(verdicts) >= 0.97
    slow = [check(learned, table(disturbed(machine(rng, slow=1.1, repeats=5)))).accepted for _ in range(100)]
    assert np.mean(slow) < 0.2


def test_a_skewed_fleet_does_not_reject_its_own_kind() -> None:
    rng = np.random.default_rng(8)

    def skewed(devices: int) -> Values:
        own = np.exp(0.006 * rng.exponential(1.0, devices))
        return {f"d{i}": (v * np.exp(0.004 * rng.standard_normal(5))).tolist() for i, v in enumerate(own)}

    rejected = [
        not check(learned, table(skewed(4))).accepted
        for learned in [learn(table(skewed(64))) for _ in range(12)]
        for _ in range(25)
    ]
    assert np.mean(rejected) <= 0.025


def test_a_control_of_the_same_day_removes_what_differs_between_days() -> None:
    rng = np.random.default_rng(9)
    learned = learn(table(machine(rng, devices=64)))

    def later(values: Values) -> Values:
        return {name: [1.06 * v for v in repeats] for name, repeats in values.items()}

    today = later(machine(rng))
    assert not check(learned, table(today)).accepted
    result = check(learned, table(today), control=table(later(machine(rng, devices=8))))
    assert result.accepted
    assert "on the day of this check, by 8 control devices" in result.notes[0]


# ------------------------------------------------ promises for fleets that are not normal (benchmarks/coverage.py)


CHECKS = load_benchmark("promises/fleet_checks")


def _most(share: float, cases: int) -> float:
    """What is exceeded by chance in one run of a hundred thousand (normal approximation)."""
    return share + 4.3 * math.sqrt(share * (1 - share) / cases)


@pytest.mark.parametrize("law", ["two bins, 80 / 20, 2 % apart", "devices gamma 1", "20 % of runs disturbed"])
def test_healthy_machines_of_such_fleets_are_accepted(law: str) -> None:
    rates = CHECKS.rates(np.random.default_rng(1), law, 60, (16, 5, 5))
    assert rates["rejected"] <= _most(0.01, 60)
    assert rates["10 % missed"] <= 0.7
