"""A run as a device study: every process, with sensors and kernels, in files that the study's own scripts read."""

import re
from pathlib import Path

import pytest

from tests.report.bench_results import step_result, step_row, write_bench
from tests.report.run_dirs import encode_telemetry
from vernier.config import Config, Recipe, to_dict
from vernier.lab.logs.as_study import study_host, write_study
from vernier.lab.logs.reading import open_logs, open_to_convert
from vernier.lab.reading.tables import read_table
from vernier.lab.records.bench import BenchRequest, BenchResult, Round
from vernier.lab.records.telemetry import Sample, TelemetryHeader
from vernier.lab.study.files import StudyDir
from vernier.records.environment import SensorDevice
from vernier.records.events import ProcessInfo, StartEvent, StepEvent
from vernier.store import RunDir, write_json

NAME = re.compile(r"(.+?)_iterdur_(\d+)_([a-zA-Z0-9-]+)_(\d+)_(\d+).txt")
"""The pattern of the study's extract_data.py."""
TIMES = {0: (9.0, 0.5, 0.5, 0.5), 1: (9.0, 0.25, 0.75, 0.25)}


def run_of_two(out: Path) -> Path:
    """A training on two GPUs of one host, the second of which is slower to start and profiled in step 2."""
    run = RunDir.create(out, "two")
    run.write_config(to_dict(Config(recipe=Recipe(name="study-resnet50", global_batch=128))))
    devices = [{"index": i, "name": "Tesla V100-SXM2-16GB", "uuid": f"GPU-{i}"} for i in range(2)]
    run.write_environment({"host": "c196-031", "device_kind": "cuda", "devices": devices})
    processes = tuple(
        ProcessInfo(rank=i, host="c196-031", device=f"cuda:{i}", pid=100 + i, uuid=f"GPU-{i}") for i in range(2)
    )
    for rank, step_s in TIMES.items():
        log = run.events(rank)
        log.emit(StartEvent(recipe="study-resnet50", world=2, processes=processes, steps_per_epoch=100))
        waits = (0.0,) * len(step_s)
        log.emit(StepEvent(step=4, epoch=0.04, loss=1, lr=1, samples=512, step_s=step_s, wait_s=waits, t_s=1010.5))
        log.close()
    telemetry = run.telemetry()
    sensors = tuple(SensorDevice(kind="cuda", index=i, name="V100", uuid=f"GPU-{i}") for i in range(2))
    telemetry.emit(encode_telemetry(TelemetryHeader(devices=sensors)))
    for i in range(2):
        for at_s in (900.0, 1001.0, 1009.0):
            sample = Sample(
                device_kind="cuda", device=i, t_s=at_s, clock_mhz=1500.0 + i, power_w=250.5, temperature_c=60.0 + i
            )
            telemetry.emit(encode_telemetry(sample))
    telemetry.close()
    run.write_status("finished")
    _profile(run)
    return run.path


def _profile(run: RunDir) -> None:
    traces = run.traces()
    (traces / "kernels.rank1.csv").write_text("name,device,calls,total_ms\nsgemm,device 1,2,3.0\n")
    write_json(traces / "profile.rank1.json", {"steps": [2, 2]})
    calls = [f"{5000 + 100 * i},1.5,device 1,7,4x2x1,128x1x1,32,0,sgemm" for i in range(2)]
    others = ["0,0.001,cpu,,,,,,aten::mm", "4000,9,device 1,7,,,,,Memcpy HtoD (Pageable -> Device)"]
    columns = "start_ms,duration_ms,device,stream,grid,block,registers,shared_memory_bytes,name"
    (traces / "calls.rank1.csv").write_text("\n".join([columns, *others, *calls]))


def test_one_file_per_device_with_its_own_times(tmp_path: Path) -> None:
    """Only device 0 was written, whatever the number of processes."""
    (run,) = open_logs(run_of_two(tmp_path / "runs"))
    out, *raw = write_study(run, tmp_path / "study")
    texts = [p for p in raw if p.suffix == ".txt"]
    matches = [NAME.match(p.name) for p in texts]
    assert [m and (m[1], m[3], m[4], m[5]) for m in matches] == [
        ("resnet", "c196-031", "0", "0"),
        ("resnet", "c196-031", "1", "0"),
    ]
    for device, path in enumerate(texts):
        lines = path.read_text().splitlines()
        assert lines[1] == f"Iteration Duration 1 {device} : {TIMES[device][1]}"
        assert re.fullmatch(r"Training time: 0:00:10\.\d{6}", lines[-1])
    study = StudyDir.open(out)
    assert [(d.id, d.index, d.host) for d in study.meta().devices] == [
        ("GPU-0", 0, "c196-031"),
        ("GPU-1", 1, "c196-031"),
    ]
    assert [r.seconds for r in study.repeats()] == list(TIMES.values())
    assert [r.sensor("clock_mhz") for r in study.repeats()] == [1500.0, 1501.0]
    assert [len(r.telemetry) for r in study.repeats()] == [2, 2]  # not the sample before the first step
    assert [len(r.kernels) for r in study.repeats()] == [0, 1]
    assert [r.device for r in read_table([out]).rows] == ["GPU-0", "GPU-1"]
    assert [r.device for r in read_table(texts).rows] == ["c196-031-0", "c196-031-1"]


def test_kernels_and_sensors_have_the_form_of_nvprof(tmp_path: Path) -> None:
    (run,) = open_logs(run_of_two(tmp_path / "runs"))
    _, *raw = write_study(run, tmp_path / "study")
    traces = [p for p in raw if p.suffix == ".csv"]
    assert [p.name.split("_")[1] for p in traces] == ["100", "101"]
    (row,) = read_table([traces[1]]).rows
    assert row.value == pytest.approx(1.5)  # ms per call
    assert row.sensors["temp"] is None  # no sample between the two calls
    text = traces[1].read_text()
    assert '"1501/0","[SM/Memory Clock (MHz)]"' in text
    assert '"250500/0","[Power/Limit (mW)]"' in text
    assert '"9.000000","1.500000","4","2","1"' in text


def test_a_process_without_events_is_named(tmp_path: Path) -> None:
    path = run_of_two(tmp_path / "runs")
    (path / "events.rank1.jsonl").unlink()
    (run,) = open_logs(path)
    out, *_ = write_study(run, tmp_path / "study")
    (repeat,) = StudyDir.open(out).repeats()
    assert repeat.notes == ("no step times of process 1: its events are not in this run directory",)


def test_the_rounds_of_a_benchmark_are_repeats(tmp_path: Path) -> None:
    asked = BenchRequest(what="train", config=to_dict(Config(recipe=Recipe(name="small"))))
    row = step_row(8, 80.0)
    rounds = tuple(
        Round(configuration=row.configuration, round=n, order=n, result=step_result((0.5, 0.25 + n), images_per_step=8))
        for n in range(2)
    )
    folder = write_bench(tmp_path, BenchResult(asked=asked, rows=(row,), rounds=rounds))
    out, *raw = write_study(open_to_convert(str(folder))[""], tmp_path / "study")
    assert [r.seconds for r in StudyDir.open(out).repeats()] == [(0.5, 0.25), (0.5, 1.25)]
    assert [p.stem[-4:] for p in raw] == ["_0_0", "_0_1"]


@pytest.mark.parametrize(
    ("host", "name"),
    [("c196-031", "c196-031"), ("c196-031.longhorn.edu", "c196-031"), ("vm", "vm-000"), ("gpu_node-x", "gpunodex-000")],
)
def test_hosts_have_a_cabinet_and_a_node(host: str, name: str) -> None:
    """The study's scripts split at the hyphen and read a number."""
    assert study_host(host) == name
