"""Arms of a benchmark in this process, on real loads that take a second."""

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_training import tiny_config
from vernier.config import override, to_dict
from vernier.engine.measured import study_repeat
from vernier.engine.measured.arm import out_of_memory, run_arm
from vernier.engine.measured.study_repeat import run_repeat

PLAN = {"steps": 6, "warmup_max_seconds": 0.3, "split_steps": 3, "max_seconds": 1.0}


def spec(shapes: Path, **more: Any) -> dict[str, Any]:
    config = override(tiny_config(shapes), "machine.telemetry_hz", 100.0)
    return {"what": "train", "config": to_dict(config), "plan": PLAN, **more}


def test_a_training_arm_measures_the_real_step(shapes: Path) -> None:
    found = run_arm(spec(shapes))
    assert found["status"] == "ok"
    assert len(found["raw"]["step_s"]) == len(found["raw"]["wait_s"]) == 6
    assert set(found["figures"]["phases"]["seconds"]) == {"data", "copy", "forward", "backward", "optimizer"}
    assert found["figures"]["phases"]["steps"] == 3
    assert found["figures"]["images_per_s_total"]["value"] == pytest.approx(16 * 6 / sum(found["raw"]["step_s"]))
    flops = found["flops"]
    assert flops["share_of_matmul"] == pytest.approx(flops["gflop_per_s_per_device"] / flops["matmul"]["gflop_per_s"])
    assert found["peak_memory_bytes"] > 2**20
    assert found["energy"] is None or found["energy"]["joules_per_image"] >= 0
    assert {"others_cores", "steal_pct", "throttled", "clock_drift_pct"} <= set(found["noise"])


@pytest.mark.parametrize("scenario", ["offline", "single-stream"])
def test_an_inference_arm(shapes: Path, scenario: str) -> None:
    found = run_arm(spec(shapes, what="infer", scenario=scenario))
    assert found["status"] == "ok"
    assert found["images_per_step"] == 16
    if scenario == "offline":
        assert set(found["figures"]["phases"]["seconds"]) == {"data", "copy", "forward"}
    else:
        assert found["figures"]["latency_s"]["n"] == 6
        assert sum(found["raw"]["wait_s"]) == 0  # the batch is in memory already


def test_a_server_arm_counts_from_planned_arrivals(shapes: Path) -> None:
    found = run_arm(spec(shapes, what="infer", scenario="server", rate_per_s=200.0, load_share=None, seed=1))
    seen, raw = found["figures"], found["raw"]
    assert seen["queries"] == len(raw["planned_s"]) == len(raw["latency_s"]) == sum(raw["batches"])
    assert seen["offered_per_s"] == 200.0
    assert max(raw["batches"]) <= 16
    assert min(raw["latency_s"]) > 0


def test_what_this_machine_refuses_is_a_result(shapes: Path) -> None:
    config = override(tiny_config(shapes), "machine.precision", "tf32")
    found = run_arm({**spec(shapes), "config": to_dict(config)})
    assert found["status"] == "refused"
    assert "tf32" in found["why"]


def test_running_out_of_memory_is_known_by_its_words() -> None:
    assert out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"))
    assert out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


@pytest.mark.parametrize("workload", ["sgemm", "bandwidth", "shapes"])
def test_a_study_repeat_times_every_iteration(shapes: Path, workload: str) -> None:
    asked = {
        "workload": workload, "iterations": 6, "device": "cpu", "cores": [], "slowdown": 1.0, "kernel_iterations": 1,
        "config": to_dict(tiny_config(shapes)),
    }  # fmt: skip
    found = run_repeat(asked)
    assert len(found["seconds"]) == 6
    assert found["train_time_s"] == pytest.approx(sum(found["seconds"]))
    assert 1 <= found["warmup"] < 6
    names = {str(k["name"]) for k in found["kernels"]}
    wanted = {"sgemm": "aten::mm", "bandwidth": "aten::copy_", "shapes": "aten::convolution_backward"}[workload]
    assert wanted in names
    if workload == "shapes":
        assert any("sgd" in name.lower() for name in names)  # F16: the optimiser is inside the iteration


def test_a_virtual_device_is_slower_by_its_factor_within_each_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Load:
        images = devices = 1

        def step(self) -> float:
            clock[0] += 1.0
            return 0.0

        def split(self, steps: int) -> dict[str, list[float]]:
            return {}

    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.001
        return clock[0]

    monkeypatch.setattr(study_repeat, "now_s", tick)
    slowed, _ = study_repeat._timed(Load(), 4, 1.5)
    plain, _ = study_repeat._timed(Load(), 4, 1.0)
    assert slowed == pytest.approx([1.5] * 4, abs=0.01)
    assert plain == pytest.approx([1.0] * 4, abs=0.01)
    asked = {
        "workload": "sgemm",
        "iterations": 2,
        "device": "cpu",
        "cores": [],
        "slowdown": 1.1,
        "kernel_iterations": 0,
    }
    monkeypatch.undo()
    assert run_repeat(asked)["notes"][0] == "simulated: slowed 1.1 times"
