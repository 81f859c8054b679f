"""Whole commands on a simulated host with eight GPUs, of which two may be used: figures are of these alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Done, only_run
from tests.lab.telemetry.nvidia_host import GPU_IS_LOST, environment, uuid_of, watts_of
from vernier.lab.records.bench import Failure, read_bench
from vernier.lab.study.files import StudyDir
from vernier.store import RunDir

pytest.importorskip("pynvml")
pytestmark = pytest.mark.slow
ONE_GPU, TWO_GPUS = {"CUDA_VISIBLE_DEVICES": "4"}, {"CUDA_VISIBLE_DEVICES": "4,5"}
SMALL = [a for a in TINY if a not in ("--global-batch", "16")]
STUDY = "study run --device cuda --workload bandwidth --iterations 40 --repeats 1 --kernels 0 --pause 0 --out study"


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "host")


def test_a_benchmark_of_one_gpu_has_its_energy_and_not_that_of_all_eight(
    vernier: Callable[..., Done], shapes: Path, host: dict[str, str], tmp_path: Path
) -> None:
    flags = "--device cuda --batch 8 --steps 30 --repeats 1 --set machine.telemetry_hz=100 --json --out o"
    done = vernier("bench", "train", "--data", str(shapes), *SMALL, *flags.split(), env=host | ONE_GPU)
    assert done.code == 0, done.err
    (row,) = done.json()["rows"]
    (measured,) = read_bench(only_run(tmp_path / "o")).rounds
    assert not isinstance(measured.result, Failure)
    energy = measured.result.energy
    assert energy is not None
    assert (energy.devices, energy.mean_power_w) == (1, pytest.approx(watts_of(4), rel=0.05))  # all eight draw 1080 W
    assert row["joules_per_image"] == energy.joules_per_image
    assert row["disturbed"]["throttled"] == []  # all others are throttled
    assert row["disturbed"]["temperature_c_max"] == 34


def test_a_training_on_two_gpus_has_the_energy_of_these_two(
    vernier: Callable[..., Done], tiny: list[str], host: dict[str, str], tmp_path: Path
) -> None:
    flags = "--device cuda --procs 2 --max-steps 40 --train-only --set machine.telemetry_hz=100 --json"
    done = vernier("train", *tiny, *flags.split(), env=host | TWO_GPUS)
    assert done.code == 0, done.err
    energy = done.json()["training"]["energy"]
    assert (energy["devices"], energy["device_kind"]) == (2, "cuda")
    assert energy["mean_power_w"] == pytest.approx(watts_of(4) + watts_of(5), rel=0.05)
    run = RunDir.open(only_run(tmp_path / "runs"))
    header = run.read_telemetry()[0]
    assert [d["uuid"] for d in header["devices"] if d["kind"] == "cuda"] == [uuid_of(4), uuid_of(5)]
    assert [p["uuid"] for p in run.read_environment()["processes"]] == [uuid_of(4), uuid_of(5)]


def test_a_study_measures_each_visible_gpu_and_reads_its_own_sensors(
    vernier: Callable[..., Done], host: dict[str, str], tmp_path: Path
) -> None:
    done = vernier(*STUDY.split(), env=host | TWO_GPUS)
    assert done.code == 0, done.err
    repeats = {r.device: r for r in StudyDir.open(tmp_path / "study").repeats()}
    assert set(repeats) == {uuid_of(4), uuid_of(5)}
    for gpu in (4, 5):
        repeat = repeats[uuid_of(gpu)]
        assert repeat.telemetry
        columns = {name: {row[name] for row in repeat.telemetry} for name in ("power_w", "clock_mhz", "temperature_c")}
        assert columns == {"power_w": {watts_of(gpu)}, "clock_mhz": {1000.0 + 10 * gpu}, "temperature_c": {30.0 + gpu}}
        assert [n for n in repeat.notes if "throttled" in n] == ([] if gpu == 4 else ["throttled: power cap"])


def test_a_process_that_sees_another_gpu_measures_nothing_and_says_so(
    vernier: Callable[..., Done], host: dict[str, str], tmp_path: Path
) -> None:
    with (tmp_path / "host/sitecustomize.py").open("a") as startup:
        startup.write("import os, sys\nif 'arm' in sys.orig_argv:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n")
    done = vernier(*STUDY.split(), env=host | ONE_GPU)
    assert done.code == 1
    assert f"was to measure cuda device {uuid_of(4)}, but computes on {uuid_of(0)}" in done.err
    assert StudyDir.open(tmp_path / "study").repeats() == []


def test_a_gpu_without_sensors_is_named_and_has_no_figure(
    vernier: Callable[..., Done], tiny: list[str], tmp_path: Path
) -> None:
    host = environment(tmp_path / "host", refused={"nvmlDeviceGetHandleByUUID": GPU_IS_LOST})
    flags = "--device cuda --max-steps 5 --train-only --set machine.telemetry_hz=100 --json"
    done = vernier("train", *tiny, *flags.split(), env=host | ONE_GPU)
    assert done.code == 0, done.err
    training = done.json()["training"]
    assert training["energy"] is None
    assert training["energy_missing"] == f"{uuid_of(4)} is not recognised: nvidia-ml-py: GPU is lost"
    environment_json = RunDir.open(only_run(tmp_path / "runs")).read_environment()
    (missing,) = [m for m in environment_json["sensors"]["missing"] if m["kind"] == "cuda"]
    assert (missing["device"], missing["sensor"]) == (0, "all")
