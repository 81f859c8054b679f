"""Configurations of a benchmark in this process, on real loads that take a second."""

import threading
from pathlib import Path

import pytest

from tests.tiny_training import tiny_config
from vernier.config import override, to_dict
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.lab.measured import process
from vernier.lab.measured.process import is_out_of_memory, run_request
from vernier.lab.records.bench import (
    Failure,
    LiveRequest,
    Measurement,
    MeasureRequest,
    Plan,
    Ready,
    StepResult,
)
from vernier.references import use
from vernier.store import read_record

PLAN = Plan(steps=6, warmup_max_seconds=0.3, split_steps=3, max_seconds=1.0)


def request(shapes: Path, **fields: object) -> MeasureRequest:
    config = override(tiny_config(shapes), "machine.telemetry_hz", 100.0)
    return MeasureRequest(**{"what": "train", "config": to_dict(config), "plan": PLAN, **fields})  # type: ignore[arg-type]


def measured_steps(of: MeasureRequest) -> StepResult:
    result = run_request(of, World(Topology()))
    assert isinstance(result, StepResult), result
    return result


def test_a_training_configuration_measures_the_real_step(shapes: Path) -> None:
    result = measured_steps(request(shapes))
    assert len(result.raw.step_s) == len(result.raw.wait_s) == 6
    phases, flops = result.figures.phases, result.flops
    assert phases is not None
    assert set(phases.seconds) == {"data", "copy", "forward", "backward", "optimizer"}
    assert phases.steps == 3
    assert result.figures.images_per_s_total.value == pytest.approx(16 * 6 / sum(result.raw.step_s))
    assert flops is not None
    rate = result.figures.images_per_s_total.value
    assert flops.gflop_per_s_per_device == pytest.approx(rate * flops.gflop_per_image)
    assert result.peak_memory_bytes is not None
    assert result.peak_memory_bytes > 2**20
    assert result.energy is None or result.energy.joules_per_image >= 0
    assert result.noise is not None
    assert result.environment.device_kind == "cpu"


@pytest.mark.parametrize("scenario", ["offline", "single-stream"])
def test_an_inference_arm(shapes: Path, scenario: str) -> None:
    result = measured_steps(request(shapes, what="infer", scenario=scenario))
    assert result.images_per_step == 16
    if scenario == "offline":
        assert result.figures.phases is not None
        assert set(result.figures.phases.seconds) == {"data", "copy", "forward"}
    else:
        assert result.figures.latency_s is not None
        assert result.figures.latency_s.n == 6
        assert sum(result.raw.wait_s) == 0  # the batch is in memory already


def test_a_configuration_that_this_machine_refuses_is_a_result_that_names_the_setting(shapes: Path) -> None:
    config = override(tiny_config(shapes), "machine.precision", "tf32")
    result = run_request(request(shapes, config=to_dict(config)), World(Topology()))
    assert isinstance(result, Failure)
    assert result.status == "refused"
    assert "tf32" in result.why
    assert use("machine.precision", "fp32") in result.why


def test_running_out_of_memory_is_recognised_by_its_words() -> None:
    message = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
    assert is_out_of_memory(RuntimeError(message))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


# ---------------------------------------------------------------------------------------------- measuring when asked to


class _Over(Exception):
    """Nothing is asked any more."""


@pytest.mark.parametrize("load", ["train", "infer"])
def test_it_gets_ready_and_measures_when_asked(
    load: str, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = LiveRequest(
        load=load,
        config=to_dict(tiny_config(shapes)),
        progress=tmp_path / "progress",
        measure_s=0.01,
        warmup_max_seconds=0.1,
    )
    request.file("0").touch()
    request.file("1").touch()

    def wait(path: Path) -> None:
        if not path.exists():
            raise _Over

    monkeypatch.setattr(process, "_wait_for", wait)
    with pytest.raises(_Over):
        process._run_live(request, World(Topology()))
    ready = read_record(Ready, request.file("ready"))
    assert ready.images >= 16
    assert ready.ran is not None
    for number in ("0.json", "1.json"):
        measured = read_record(Measurement, request.file(number))
        assert measured.images_per_s > 0
    assert not request.file("2.json").exists()


def test_it_waits_until_it_is_asked(tmp_path: Path) -> None:
    timer = threading.Timer(0.05, (tmp_path / "0").touch)
    timer.start()
    process._wait_for(tmp_path / "0")
    timer.join()
