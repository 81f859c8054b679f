"""A device that collects operations until the end of a step: where its programs end, and what compiling them costs.

The stand-in is the CPU that counts the ends of steps and pretends compilations; torch_xla is tried by `make test-xla`.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Config, Ema
from vernier.devices.cpu import Cpu
from vernier.lab.bench.measuring import warm_up
from vernier.lab.records.bench import Plan
from vernier.optim.ema import WeightAverage
from vernier.records.events import EvalEvent, StepEvent, WarningEvent
from vernier.records.run import Compilation


def config_for(shapes: Path, *, accumulation: int = 1, steps: int = 8) -> Config:
    config = tiny_config(shapes, ema=Ema(decay=0.9))
    return replace(
        config,
        machine=replace(config.machine, accumulation=accumulation, telemetry_hz=0.0),
        limits=replace(config.limits, max_steps=steps, log_every_steps=1),
    )


def test_a_step_ends_once_after_the_average_and_an_evaluation_begins_and_ends_a_program(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    average, update = WeightAverage.update, Cpu.optimizer_step
    monkeypatch.setattr(Cpu, "end_step", lambda self: happened.append("end"))
    monkeypatch.setattr(WeightAverage, "update", lambda self, step: (happened.append("average"), average(self, step)))
    monkeypatch.setattr(Cpu, "optimizer_step", lambda self, o: (happened.append("update"), update(self, o)))
    run_training(config_for(shapes, accumulation=2, steps=2), tmp_path)
    before, step, evaluation = ["end"], ["end", "update", "average", "end"], ["end"] * (1 + 4 + 1)  # 4 batches of 16
    assert happened == [*before, *step, *step, *evaluation]


class Compiling:
    """Graphs that were compiled after so many ends of steps; one second each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *at: int) -> None:
        self.ends, self.at = 0, at
        monkeypatch.setattr(Cpu, "end_step", self._end)
        monkeypatch.setattr(Cpu, "compilations", lambda _: self())

    def _end(self) -> None:
        self.ends += 1

    def __call__(self) -> Compilation:
        graphs = sum(self.ends >= end for end in self.at)
        return Compilation(graphs=graphs, seconds=0.001 * graphs)


def test_compile_time_is_no_compute_and_its_steps_have_no_speed(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Compiling(monkeypatch, 2, 3, 7)  # the first end is that of set-up: steps 1, 2 and 6
    outcome = run_training(config_for(shapes), tmp_path)
    events = events_of(outcome.run, StepEvent)
    assert [event.compilations for event in events] == [1, 1, None, None, None, 1, None, None]
    assert [event.compile_s for event in events if event.compilations] == [pytest.approx(0.001)] * 3
    assert outcome.summary.spent_s["compilation"] == pytest.approx(0.003)
    speed = outcome.summary.training
    assert speed is not None
    assert speed.steps_measured is not None
    assert speed.warmup_steps_excluded is not None
    assert speed.steps_measured <= 5
    assert speed.steps_measured + speed.warmup_steps_excluded == 8


def test_what_an_evaluation_compiles_belongs_to_no_step(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Compiling(monkeypatch, 12)  # ends: set-up, ten steps of the epoch, then the evaluation
    outcome = run_training(config_for(shapes, steps=12), tmp_path)
    assert len(events_of(outcome.run, EvalEvent)) == 2
    assert not any(event.compilations for event in events_of(outcome.run, StepEvent))


def test_compilations_that_do_not_end_are_a_warning(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Compiling(monkeypatch, *range(2, 10))
    outcome = run_training(config_for(shapes), tmp_path)
    (warning,) = [e for e in events_of(outcome.run, WarningEvent) if "compiled" in e.message]
    assert warning.step == 5
    assert outcome.summary.training is None  # no step without a compilation: no speed


class CompilingLoad:
    """A load whose first steps compile."""

    images, devices = 8, 1

    def __init__(self, compiling: int) -> None:
        self.steps, self.compiling, self.device = 0, compiling, Cpu()
        self.device.compilations = lambda: Compilation(  # type: ignore[method-assign]
            graphs=min(self.steps, self.compiling), seconds=60.0 * min(self.steps, self.compiling)
        )

    def step(self) -> float:
        self.steps += 1
        torch.zeros(8).sum()
        return 0.0

    def split(self, steps: int) -> dict[str, list[float]]:
        return {}


@pytest.mark.parametrize(("compiling", "steps"), [(0, 1), (3, 4), (99, 20)])
def test_a_benchmark_warms_up_until_a_step_compiles_nothing(compiling: int, steps: int) -> None:
    """However short the time for it; if it does not end, twenty steps are enough."""
    warmed = warm_up(CompilingLoad(compiling), Plan(warmup_max_seconds=0.0))
    assert len(warmed.step_s) == steps
