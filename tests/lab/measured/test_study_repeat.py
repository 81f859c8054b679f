"""Repeats of a study in this process, on real loads that take a second."""

from pathlib import Path

import pytest

from tests.lab.telemetry.nvidia_host import NvmlLibrary, SimulatedCuda, install_cuda, install_nvml, uuid_of
from tests.tiny_training import tiny_config
from vernier.config import to_dict
from vernier.errors import ConfigError
from vernier.lab.measured import study_repeat
from vernier.lab.measured.study_repeat import check_device, run_repeat
from vernier.lab.records.bench import StudyRequest


@pytest.mark.parametrize(
    ("workload", "kernel"),
    [("sgemm", "aten::mm"), ("bandwidth", "aten::copy_"), ("shapes", "aten::convolution_backward")],
)
def test_a_study_repeat_times_every_iteration(shapes: Path, workload: str, kernel: str) -> None:
    config = to_dict(tiny_config(shapes))
    result = run_repeat(StudyRequest(workload=workload, iterations=6, device="cpu", kernel_iterations=1, config=config))
    assert len(result.seconds) == 6
    assert result.train_time_s == pytest.approx(sum(result.seconds))
    assert 1 <= result.warmup < 6
    names = {str(k["name"]) for k in result.kernels}
    assert kernel in names
    if workload == "shapes":
        assert any("sgd" in name.lower() for name in names)  # the optimiser is inside the iteration


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
    slowed, _ = study_repeat._time_iterations(Load(), 4, 1.5)
    plain, _ = study_repeat._time_iterations(Load(), 4, 1.0)
    assert slowed == pytest.approx([1.5] * 4, abs=0.01)
    assert plain == pytest.approx([1.0] * 4, abs=0.01)


def test_a_simulated_slowdown_is_in_the_notes() -> None:
    result = run_repeat(StudyRequest(workload="sgemm", iterations=2, device="cpu", slowdown=1.1))
    assert result.notes[0] == "simulated: slowed 1.1 times"


def test_the_pace_is_written_between_two_iterations(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    run_repeat(StudyRequest(workload="sgemm", iterations=4, device="cpu", progress=progress))
    assert '"fastest_s"' in progress.read_text()


def test_a_repeat_makes_sure_that_it_computes_on_the_device_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    request = StudyRequest(workload="bandwidth", iterations=2, device="cuda", uuid=uuid_of(4))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid_of(4))
    assert check_device(request, SimulatedCuda()).uuid == uuid_of(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # what an index of a parent with other devices would mean
    with pytest.raises(ConfigError, match=f"was to measure cuda device {uuid_of(4)}, but computes on {uuid_of(0)}"):
        check_device(request, SimulatedCuda())


def test_a_device_that_cannot_be_recognised_has_no_sensor_rows_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    install_nvml(NvmlLibrary(refused={"nvmlDeviceGetHandleByUUID": 6}), monkeypatch.setattr)
    install_cuda(monkeypatch.setattr)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    result = run_repeat(StudyRequest(workload="bandwidth", iterations=3, device="cuda", uuid=uuid_of(4)))
    assert result.telemetry == ()
    assert f"no sensors of cuda device 0: {uuid_of(4)} is not recognised: nvidia-ml-py: Not Found" in result.notes
