"""Rounds of a benchmark with step times that a test chooses."""

from collections.abc import Sequence
from typing import Any

from vernier.lab.bench.measuring import compute_figures
from vernier.lab.records.bench import Round, Samples, StepResult, WarmUpSamples
from vernier.records.environment import CpuInfo, Environment
from vernier.records.profile import Noise


def step_result(
    step_s: Sequence[float], *, images: int = 10, wait: float = 0.0, devices: int = 1, others_cores: float = 0.0
) -> StepResult:
    """The result of a process whose steps took these seconds, a share of each spent waiting for data."""
    samples = Samples(
        warmup=WarmUpSamples(step_s=(9.0, *step_s[:2]), steady=True),
        step_s=tuple(step_s),
        wait_s=tuple(wait * s for s in step_s),
        ended_s=sum(step_s),
        cpu_s=0.8 * sum(step_s),
    )
    return StepResult(
        method="m",
        images_per_step=images,
        figures=compute_figures(samples, images=images, devices=devices),
        raw=samples,
        noise=Noise(samples=3, others_cores=others_cores),
        environment=Environment(device_kind="cpu", cpu=CpuInfo(cores_logical=2)),
        peak_memory_bytes=2**20,
    )


def rounds(name: str, *sets: Sequence[float], **process: Any) -> list[Round]:
    """One round per set of step times; `process` is passed to `step_result`."""
    return [Round(configuration=name, round=i, order=i, result=step_result(s, **process)) for i, s in enumerate(sets)]
