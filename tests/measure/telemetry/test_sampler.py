import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from vernier.measure.statistics.run_summary import summarize_training
from vernier.measure.telemetry import sampler as telemetry
from vernier.measure.telemetry.sampler import Family, Kept, Sampler, energy, joules_per_image, noise, noise_words
from vernier.store import RunDir


def at(t_s: float, **fields: object) -> dict[str, object]:
    return {"kind": "sample", "device_kind": "cpu", "device": 0, "session": 0, "t_s": t_s, **fields}


def test_a_counter_comes_before_integrated_power() -> None:
    both = [at(t, energy_j=100.0 * t, power_w=1.0) for t in range(11)]
    found = energy(both, [(2.5, 7.5)])
    assert found is not None
    assert (found.method, found.joules) == ("counter", pytest.approx(500))
    drawn = energy([at(t, power_w=50.0 + 10 * t) for t in range(11)], [(0.0, 4.0), (6.0, 10.0)])
    assert drawn is not None
    assert (drawn.method, drawn.joules) == ("integrated power", pytest.approx(4 * 70 + 4 * 130))


def test_energy_is_unknown_where_samples_do_not_cover_the_time() -> None:
    samples = [at(t, energy_j=float(t)) for t in range(5)]
    assert energy(samples, [(0.0, 20.0)]) is None
    assert energy([at(1.0)], [(0.0, 1.0)]) is None
    assert joules_per_image([at(t) for t in range(9)], [(0.0, 5.0)], 10) is None


def test_an_accelerators_joules_are_summed_over_devices_and_the_host_is_not_one() -> None:
    records = [at(t, energy_j=1000.0 * t) for t in range(5)]
    records += [{**at(t, energy_j=10.0 * t), "device_kind": "cuda", "device": d} for t in range(5) for d in (0, 1)]
    found = joules_per_image(records, [(0.0, 4.0)], images=40)
    assert found is not None
    assert (found["joules_per_image"], found["devices"], found["mean_power_w"]) == (2.0, 2, 20.0)


def test_noise_is_named() -> None:
    samples = [
        at(t, others_pct=40.0, steal_pct=5.0, throttle=["thermal"] if t == 5 else [], clock_mhz=3000.0 - 100 * t)
        for t in range(9)
    ]
    found = noise(samples, (0.0, 10.0), cores=2)
    assert found["others_cores"] == pytest.approx(0.8)
    words = " ".join(noise_words(found))
    assert all(w in words for w in ("0.80 cores", "5.0 %", "thermal", "clock drifted by -"))
    quiet = noise([at(1.0, others_pct=1.0)], (0.0, 2.0), cores=2)
    assert noise_words(quiet) == []
    assert (quiet["throttled"], quiet["clock_drift_pct"], quiet["steal_pct"]) == (None, None, None)


def test_the_sampler_says_what_it_reads_what_it_lacks_and_what_it_costs(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    kept = Kept()
    with Sampler("cpu", kept, hz=200) as sampler:
        while len(kept.samples) < 5:
            pass
    header, end = kept.records[0], kept.records[-1]
    assert header["kind"] == "header"
    assert header["missing"] == sampler.missing
    assert end["kind"] == "end"
    assert end["samples"] >= 5
    assert 0 < end["cpu_s"] < end["seconds"]
    times = [s["t_s"] for s in kept.samples]
    assert times == sorted(times)


def test_off_is_off() -> None:
    kept = Kept()
    with Sampler("cpu", kept, hz=0):
        pass
    assert kept.records == []


def test_a_sensor_that_dies_ends_the_sampling_and_not_the_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    kept = Kept()
    with Sampler("cpu", kept, hz=500):
        while not kept.samples:
            pass
        (machine / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
        while kept.records[-1]["kind"] != "end":
            pass
    assert "energy_uj" in kept.records[-1]["problem"]


def test_a_family_is_a_process_and_what_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        members = {p.pid for p in Family(os.getpid())()}
        child.communicate(b"\n")
    assert {os.getpid(), child.pid} <= members


def test_a_training_run_has_telemetry_and_joules_where_there_is_a_counter(
    vernier_here: Callable[..., Done],
    tiny: list[str],
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    done = vernier_here(
        "train", *tiny, "--max-steps", "12", "--train-only", "--set", "machine.telemetry_hz=100", "--json"
    )
    assert done.code == 0, done.err
    run = RunDir.open(only_run(tmp_path / "runs"))
    records = run.read_telemetry()
    assert [records[0]["kind"], records[-1]["kind"]] == ["header", "end"]
    spent = done.json()["training"]["energy"]
    assert (spent["joules"], spent["method"]) == (0.0, "counter")  # the counter of this machine stands still
    found = json.loads((run.path / "environment.json").read_text())["sensors"]
    assert found["hz"] == 100
    assert {m["sensor"] for m in found["missing"]} == {"memory_clock_mhz", "power_limit_w"}


def test_no_telemetry_when_turned_off(vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "2", "--train-only", "--set", "machine.telemetry_hz=0", "--json")
    assert done.code == 0, done.err
    run = RunDir.open(only_run(tmp_path / "runs"))
    assert not list(run.path.glob("telemetry*"))
    assert done.json()["training"]["energy"] is None


def test_joules_count_the_newest_session_only() -> None:
    def step(t_s: float) -> dict[str, object]:
        return {"kind": "step", "step": 1, "step_s": [1.0, 1.0], "wait_s": [0.0, 0.0], "samples": 10, "t_s": t_s}

    events = [{"kind": "start"}, step(100.0), {"kind": "start"}, step(6.0)]
    samples = [at(float(t), energy_j=7.0 * t, session=1) for t in range(8)]
    samples += [at(float(t), energy_j=900.0 * t, session=0) for t in range(8)]
    found = summarize_training(events, global_batch=5, devices=1, telemetry=samples)
    assert found is not None
    assert found["energy"]["joules_per_image"] == pytest.approx(1.4)


def test_the_fields_that_are_read_are_those_that_are_explained() -> None:
    with Sampler("cpu", kept := Kept(), hz=500):
        while not kept.samples:
            pass
    known = {"kind", "device_kind", "device", "session", "t_s", *telemetry.FIELDS}
    assert {name for s in kept.samples for name in s} <= known
