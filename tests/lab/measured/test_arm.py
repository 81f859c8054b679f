"""Arms of a benchmark in this process, on real loads that take a second."""

from pathlib import Path

import pytest

from tests.tiny_training import tiny_config
from vernier.config import override, to_dict
from vernier.lab.measured.arm import is_out_of_memory, run_request
from vernier.records.bench import ArmFailure, ArmRequest, Plan, ServingResult, StepResult
from vernier.references import use

PLAN = Plan(steps=6, warmup_max_seconds=0.3, split_steps=3, max_seconds=1.0)


def request(shapes: Path, **fields: object) -> ArmRequest:
    config = override(tiny_config(shapes), "machine.telemetry_hz", 100.0)
    return ArmRequest(**{"what": "train", "config": to_dict(config), "plan": PLAN, **fields})  # type: ignore[arg-type]


def measured_steps(of: ArmRequest) -> StepResult:
    result = run_request(of)
    assert isinstance(result, StepResult), result
    return result


def test_a_training_arm_measures_the_real_step(shapes: Path) -> None:
    result = measured_steps(request(shapes))
    assert len(result.raw.step_s) == len(result.raw.wait_s) == 6
    phases, flops = result.figures.phases, result.flops
    assert phases is not None
    assert set(phases.seconds) == {"data", "copy", "forward", "backward", "optimizer"}
    assert phases.steps == 3
    assert result.figures.images_per_s_total.value == pytest.approx(16 * 6 / sum(result.raw.step_s))
    assert flops is not None
    assert flops.share_of_matmul == pytest.approx(flops.gflop_per_s_per_device / flops.matmul.gflop_per_s)
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


def test_a_server_arm_counts_from_planned_arrivals(shapes: Path) -> None:
    result = run_request(request(shapes, what="infer", scenario="server", rate_per_s=200.0, seed=1))
    assert isinstance(result, ServingResult)
    figures, raw = result.figures, result.raw
    assert figures.queries == len(raw.planned_s) == len(raw.latency_s) == sum(raw.batches)
    assert figures.offered_per_s == 200.0
    assert max(raw.batches) <= 16
    assert min(raw.latency_s) > 0


def test_an_arm_that_this_machine_refuses_is_a_result_that_names_the_setting(shapes: Path) -> None:
    config = override(tiny_config(shapes), "machine.precision", "tf32")
    result = run_request(request(shapes, config=to_dict(config)))
    assert isinstance(result, ArmFailure)
    assert result.status == "refused"
    assert "tf32" in result.why
    assert use("machine.precision", "fp32") in result.why


def test_running_out_of_memory_is_recognised_by_its_words() -> None:
    message = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
    assert is_out_of_memory(RuntimeError(message))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
