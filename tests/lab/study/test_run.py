"""Collecting a study: targets, order, cooling, and resuming; the measuring process is replaced by a fixed answer here.

The real process is run by tests/integration/test_bench_cli.py (study of simulated devices).
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import put
from tests.lab.telemetry.nvidia_host import NvmlLibrary, SimulatedCuda, install_nvml, uuid_of
from vernier.devices.cpu import Cpu
from vernier.devices.cuda import Cuda
from vernier.errors import ConfigError, RunFailed
from vernier.lab.launcher import Ended
from vernier.lab.reading.csv_tables import read_csv
from vernier.lab.records.bench import ExactResult, Failure, MeasuringProgress, RepeatResult
from vernier.lab.study import run as study_run
from vernier.lab.study.files import StudyDir
from vernier.lab.study.run import (
    Cooler,
    StudySettings,
    collect,
    find_targets,
    parse_slow,
    plan_order,
    plan_study,
)
from vernier.lab.study.votes import vote
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo


class _OneCpu(Cpu):
    def identity(self) -> list[DeviceInfo]:
        return [DeviceInfo(index=0, name="a cpu", uuid="machine-7")]


class _FourGpus(Cuda):
    def identity(self) -> list[DeviceInfo]:
        return [DeviceInfo(index=i, name="a card", uuid=f"GPU-{i}") for i in range(4)]


CPU, GPUS = _OneCpu(), _FourGpus()


def test_cores_are_devices_with_the_machines_identity() -> None:
    targets = find_targets(StudySettings(), CPU)
    cores = sorted(os.sched_getaffinity(0))
    assert [t.cores for t in targets] == [(c,) for c in cores]
    assert targets[0].device.id == f"machine-7-core{cores[0]}"


def test_cores_that_cannot_be_pinned_to_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(ConfigError, match="cannot pin a process to a core"):
        find_targets(StudySettings(), CPU)


def test_accelerators_are_known_by_their_uuid_and_seen_alone() -> None:
    targets = find_targets(StudySettings(), GPUS)
    assert [t.device.id for t in targets] == [f"GPU-{i}" for i in range(4)]
    assert [t.variables for t in targets] == [{"CUDA_VISIBLE_DEVICES": f"GPU-{i}"} for i in range(4)]


def test_a_study_measures_the_gpus_that_slurm_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    targets = find_targets(StudySettings(), SimulatedCuda())
    assert [t.device.id for t in targets] == [uuid_of(4), uuid_of(5)]
    for target in targets:
        with monkeypatch.context() as child:
            child.setenv("CUDA_VISIBLE_DEVICES", target.variables["CUDA_VISIBLE_DEVICES"])
            assert [d.uuid for d in SimulatedCuda().identity()] == [target.uuid] == [target.device.id]


def test_simulated_devices_are_bound_to_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    targets = find_targets(StudySettings(virtual=3), SimulatedCuda())
    assert [t.uuid for t in targets] == [uuid_of(4), uuid_of(5), uuid_of(4)]


def test_virtual_devices_are_labelled_and_have_their_factor() -> None:
    targets = find_targets(StudySettings(virtual=5, slow=parse_slow("3=1.08, 4=1.5")), CPU)
    assert [t.device.slowdown for t in targets] == [1.0, 1.0, 1.0, 1.08, 1.5]
    assert all("simulated" in t.device.id and "simulated" in t.device.name for t in targets)
    with pytest.raises(ConfigError) as refused:
        find_targets(StudySettings(virtual=5, slow=((9, 1.1),)), CPU)
    assert refused.value.given == {"slow": None, "virtual": 5}
    with pytest.raises(ConfigError) as refused:
        find_targets(StudySettings(slow=((1, 1.1),)), CPU)
    assert refused.value.works == [("virtual", "N")]


@pytest.mark.parametrize("text", ["3", "3=0.5", "a=1.1", "3=1.1;4=1.2", ""])
def test_malformed_slow_factors_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="INDEX=FACTOR"):
        parse_slow(text)


def test_the_order_is_random_by_round_and_repeatable() -> None:
    order = plan_order(["a", "b", "c", "d"], 5, seed=1)
    assert [sorted(n for n, k in order if k == r) for r in range(5)] == [["a", "b", "c", "d"]] * 5
    assert len({tuple(n for n, k in order if k == r) for r in range(5)}) > 1
    assert order == plan_order(["a", "b", "c", "d"], 5, seed=1) != plan_order(["a", "b", "c", "d"], 5, seed=2)


def test_cooling_down_waits_for_the_idle_temperature(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(machine))
    sensor = machine / "sys/class/hwmon/hwmon0/temp1_input"
    cooler = Cooler("cpu", [None], 999.0)
    assert cooler.idle_c == {None: 51.5}
    put(sensor, "60000")
    polls = []

    def wait(_: Any, seconds: float) -> None:
        polls.append(seconds)
        put(sensor, str(60000 - 2000 * len(polls)))

    monkeypatch.setattr(study_run.threading.Event, "wait", wait)
    assert cooler.wait() == ""
    assert polls == [5.0] * 4  # 58, 56, 54, 52: within one degree of idle
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr(study_run, "now_s", lambda: float(next(clock)))
    monkeypatch.setattr(study_run.threading.Event, "wait", lambda *_: None)
    put(sensor, "90000")
    assert "not cooled down" in cooler.wait()


def test_without_a_sensor_the_pause_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_SENSOR_ROOT", str(tmp_path))
    polls: list[float] = []
    monkeypatch.setattr(study_run.threading.Event, "wait", lambda _, seconds: polls.append(seconds))
    assert Cooler("cpu", [None], 7.0).wait() == ""
    assert polls == [7.0]


def test_only_the_device_that_is_next_has_to_cool_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    hot, library = {4: 30, 5: 30}, NvmlLibrary()
    monkeypatch.setattr(
        library,
        "nvmlDeviceGetTemperature",
        lambda handle, _, celsius: library._fill(handle, lambda n: setattr(celsius._obj, "value", hot[n])),
    )
    install_nvml(library, monkeypatch.setattr)
    polls: list[float] = []
    monkeypatch.setattr(study_run.threading.Event, "wait", lambda _, seconds: polls.append(seconds))
    cooler = Cooler("cuda", [uuid_of(4), uuid_of(5)], 7.0)
    assert cooler.idle_c == {uuid_of(4): 30, uuid_of(5): 30}
    hot[5] = 80
    assert cooler.wait(uuid_of(4)) == ""
    assert polls == []
    monkeypatch.setattr(study_run.threading.Event, "wait", lambda *_: hot.update({5: 31}))
    assert cooler.wait(uuid_of(5)) == ""
    assert hot[5] == 31
    cooler.close()


class Log:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def begin(self, study: StudyDir, done: int, total: int) -> None:
        self.calls.append((done, total))

    def progress(self, now: MeasuringProgress | None, left: int) -> None:
        self.calls.append((now and now.fastest_s, left))

    def repeat(self, done: int, total: int, what: str) -> None:
        pass


RESULT = RepeatResult(time="now", seconds=(2.0, 1.0, 1.0), warmup=1, train_time_s=4.0)


def _ended(result: RepeatResult | Failure) -> Ended:
    return Ended(tree=encode(result), code=0, seconds=5.0, output="")


def _finish(request: Any, *, variables: Any, on_progress: Any) -> Ended:
    on_progress(MeasuringProgress(phase="measuring", fastest_s=1.0))
    return _ended(RESULT)


def test_an_interrupted_study_resumes_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(request: Any, **how: Any) -> Ended:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(request.uuid)
        return _finish(request, **how)

    settings = StudySettings(repeats=2, pause_s=0)
    at = (settings, find_targets(settings, GPUS), "cuda", tmp_path / "s")
    monkeypatch.setattr(study_run, "run", run)
    with pytest.raises(KeyboardInterrupt):
        collect(*at, Log())
    assert len(StudyDir.open(tmp_path / "s").repeats()) == 3
    listener = Log()
    monkeypatch.setattr(study_run, "run", _finish)
    study = collect(*at, listener)
    assert len(study.repeats()) == 8
    assert listener.calls == [(3, 8), *[(1.0, 5)] * 5]
    again = Log()
    collect(*at, again)
    assert again.calls == [(8, 8)]


def test_a_device_that_dissents_is_measured_again_next_to_two_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    at = StudySettings(workload="exact", repeats=2, pause_s=0), find_targets(StudySettings(), GPUS), "cuda"

    def measure(wrong: dict[tuple[str, int], str], stop: int = 99) -> list[str]:
        """What is measured; `wrong`: what a device computes in a repeat instead."""

        def run(request: Any, **_: Any) -> Ended:
            if len(ran) == stop:
                raise KeyboardInterrupt
            done = wrong.get((request.uuid, ran.count(request.uuid)), "right")
            ran.append(request.uuid)
            return _ended(replace(RESULT, exact=ExactResult(library="torch", fingerprints=(f"sum {done}",))))

        monkeypatch.setattr(study_run, "run", run)
        before = len(ran)
        collect(*at, tmp_path / "s", Log())
        return ran[before:]

    with pytest.raises(KeyboardInterrupt):
        measure({("GPU-1", 0): "wrong"}, stop=9)  # in the second one of the further repeats
    assert len(measure({})) == 5
    assert ran[8:] == ["GPU-1", "GPU-0", "GPU-2"] * 2
    assert measure({}) == []
    (result,) = vote(StudyDir(tmp_path / "s").ballots())
    (dissent,) = result.dissents
    assert (dissent.device, dissent.verdict, dissent.wrong, dissent.repeats) == ("GPU-1", "suspected", 1, 4)
    assert dissent.first == "sum"


def test_a_clean_study_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ExactResult(library="torch", fingerprints=("sum right",))
    monkeypatch.setattr(study_run, "run", lambda *_, **__: _ended(replace(RESULT, exact=exact)))
    settings = StudySettings(workload="exact", repeats=2, pause_s=0)
    assert len(collect(settings, find_targets(settings, GPUS), "cuda", tmp_path / "s", Log()).repeats()) == 8


def test_without_a_directory_an_interrupted_study_of_today_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_run, "run", _finish)
    settings = StudySettings(repeats=2, pause_s=0)
    targets, path = find_targets(settings, GPUS), tmp_path / "20261119-120000-study-resnet50"
    meta = plan_study(settings, targets)
    study = collect(settings, targets, "cuda", path, Log())
    assert StudyDir.find_interrupted(tmp_path, meta) is None, "it is finished"
    shutil.rmtree(study.finished()[0])
    assert StudyDir.find_interrupted(tmp_path, meta) == path
    assert StudyDir.find_interrupted(tmp_path, plan_study(replace(settings, seed=1), targets)) is None
    with study.locked():
        assert StudyDir.find_interrupted(tmp_path, meta) is None, "another process measures it"
    os.utime(path / "study.json", (1, 1))
    assert StudyDir.find_interrupted(tmp_path, meta) is None, "the machine was another one then"


def test_a_study_is_not_resumed_in_the_directory_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_run, "run", _finish)
    settings = StudySettings(repeats=1, pause_s=0)
    study = collect(settings, find_targets(settings, GPUS), "cuda", tmp_path / "s", Log())
    other = StudySettings(repeats=1, pause_s=0, batch=8)
    with pytest.raises(ConfigError, match=r"differs in settings.batch \(64 there, 8 now\)"):
        collect(other, find_targets(other, GPUS), "cuda", tmp_path / "s", Log())
    with study.locked(), pytest.raises(ConfigError, match="another process"):
        collect(settings, find_targets(settings, GPUS), "cuda", tmp_path / "s", Log())


def test_one_device_that_fails_does_not_lose_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(request: Any, **_: Any) -> Ended:
        if request.uuid == "GPU-2":
            return _ended(Failure(status="out-of-memory", why="too big"))
        telemetry, kernels = ({"t_s": 0.1, "clock_mhz": 1500.0},), ({"name": "k", "total_ms": 1.0},)
        return _ended(replace(RESULT, telemetry=telemetry, kernels=kernels))

    monkeypatch.setattr(study_run, "run", run)
    settings = StudySettings(repeats=2, pause_s=0)
    with pytest.raises(RunFailed, match=r"2 of 8 repeats failed.*too big"):
        collect(settings, find_targets(settings, GPUS), "cuda", tmp_path / "s", Log())
    study = StudyDir.open(tmp_path / "s")
    assert len(study.repeats()) == 6
    assert study.repeats()[0].sensor("clock_mhz") == 1500
    rows = read_csv(study.path / "all_data.csv")
    assert {r["uuid"] for r in rows} == {"GPU-0", "GPU-1", "GPU-3"}
    assert rows[0]["max_iter_dur"] == 1.0  # the first iteration is in no figure
    assert (tmp_path / "s" / "aggregated_data.csv").exists()
