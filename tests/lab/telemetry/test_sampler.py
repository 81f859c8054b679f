import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.lab.telemetry.nvidia_host import NvmlLibrary, install_nvml, uuid_of
from tests.report.run_dirs import encode_telemetry
from vernier.clock import now_s
from vernier.lab.records.telemetry import (
    LostSensor,
    Sample,
    TelemetryEnd,
    TelemetryHeader,
    TelemetryRecord,
    decode_telemetry,
)
from vernier.lab.telemetry.sampler import ProcessTree, Sampler
from vernier.store import RunDir


def samples_in(records: list[TelemetryRecord]) -> list[Sample]:
    return [record for record in records if isinstance(record, Sample)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = now_s() + 30
    while not condition():
        assert now_s() < deadline_s, "nothing was sampled for 30 s"


def test_the_sampler_says_what_it_reads_what_it_lacks_and_what_it_costs(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    records: list[TelemetryRecord] = []
    with Sampler("cpu", [], records.append, hz=200) as sampler:
        wait_until(lambda: len(samples_in(records)) >= 5)
    header, end = records[0], records[-1]
    assert isinstance(header, TelemetryHeader)
    assert header.missing == sampler.setup.missing
    assert isinstance(end, TelemetryEnd)
    assert end.samples >= 5
    assert 0 < end.cpu_s < end.seconds
    times = [s.t_s for s in samples_in(records)]
    assert times == sorted(times)


def test_samples_cover_all_of_the_time_however_short_it_is(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    records: list[TelemetryRecord] = []
    with Sampler("cpu", [], records.append, hz=0.001):
        measured_s = now_s()
    end = records[-1]
    assert isinstance(end, TelemetryEnd)
    assert end.samples == 2
    assert samples_in(records)[0].t_s <= measured_s + 1e-6
    assert samples_in(records)[-1].t_s >= measured_s - 1e-6


def test_zero_hz_samples_nothing() -> None:
    records: list[TelemetryRecord] = []
    with Sampler("cpu", [], records.append, hz=0):
        pass
    assert records == []


def test_a_sensor_that_dies_ends_the_sampling_and_not_the_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    records: list[TelemetryRecord] = []
    with Sampler("cpu", [], records.append, hz=500):
        wait_until(lambda: bool(samples_in(records)))
        (machine / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
        wait_until(lambda: isinstance(records[-1], TelemetryEnd))
    end = records[-1]
    assert isinstance(end, TelemetryEnd)
    assert "energy_uj" in (end.problem or "")


def test_a_gpu_that_vanishes_is_recorded_and_the_sampling_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pynvml")
    library, records = NvmlLibrary(), list[TelemetryRecord]()
    install_nvml(library, monkeypatch.setattr)

    def samples_of(device: int) -> int:
        return sum((s.device_kind, s.device) == ("cuda", device) for s in samples_in(records))

    with Sampler("cuda", [uuid_of(4), uuid_of(5)], records.append, hz=500):
        wait_until(lambda: samples_of(0) > 2)
        library.lost.add(4)
        wait_until(lambda: any(isinstance(r, LostSensor) for r in records))
        before = [samples_of(0), samples_of(1)]
        wait_until(lambda: samples_of(1) > before[1] + 2)
    header, end = records[0], records[-1]
    assert isinstance(header, TelemetryHeader)
    assert (header.device_kind, [d.uuid for d in header.devices]) == ("cuda", [uuid_of(4), uuid_of(5), None])
    assert samples_of(0) == before[0]
    assert isinstance(end, TelemetryEnd)
    assert end.problem is None
    assert decode_telemetry(map(encode_telemetry, records)) == records
    (lost,) = (r for r in records if isinstance(r, LostSensor))
    assert (lost.device_kind, lost.device, lost.sensor) == ("cuda", 0, "all")
    assert "GPU is lost" in lost.why


def test_a_process_tree_has_a_process_and_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        members = {p.pid for p in ProcessTree(os.getpid())()}
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
    energy = done.json()["training"]["energy"]
    assert (energy["joules"], energy["method"]) == (0.0, "counter")  # the counter of this machine stands still
    sensors = json.loads((run.path / "environment.json").read_text())["sensors"]
    assert sensors["hz"] == 100
    assert {m["sensor"] for m in sensors["missing"]} == {"memory_clock_mhz", "power_limit_w"}


def test_no_telemetry_when_turned_off(vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "2", "--train-only", "--set", "machine.telemetry_hz=0", "--json")
    assert done.code == 0, done.err
    run = RunDir.open(only_run(tmp_path / "runs"))
    assert not list(run.path.glob("telemetry*"))
    assert done.json()["training"]["energy"] is None
