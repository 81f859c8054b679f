"""Rounds of a benchmark with step times that a test chooses."""

from collections.abc import Sequence

from vernier.lab.bench.measuring import compute_figures
from vernier.records.bench import Round, Samples, StepResult, WarmUpSamples
from vernier.records.telemetry import Noise


def step_result(step_s: Sequence[float], *, images: int = 10, wait: float = 0.0, devices: int = 1) -> StepResult:
    """The result of a process whose steps took these seconds, a share of each spent waiting for data."""
    samples = Samples(
        warmup=WarmUpSamples(step_s=(9.0, *step_s[:2]), steady=True),
        step_s=tuple(step_s),
        wait_s=tuple(wait * s for s in step_s),
        ended_s=sum(step_s),
    )
    return StepResult(
        method="m",
        images_per_step=images,
        figures=compute_figures(samples, images=images, devices=devices),
        raw=samples,
        noise=Noise(samples=3, others_cores=0.0),
        peak_memory_bytes=2**20,
    )


def rounds(name: str, *sets: Sequence[float], images: int = 10, wait: float = 0.0, devices: int = 1) -> list[Round]:
    """One round per set of step times."""
    return [
        Round(arm=name, round=i, order=i, result=step_result(s, images=images, wait=wait, devices=devices))
        for i, s in enumerate(sets)
    ]
