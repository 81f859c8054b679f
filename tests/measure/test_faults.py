"""Faults found in the tools this one succeeds: for each a test that it is not here.

The numbers are those of the list the project keeps of such faults; each test says what the fault was.
"""

import datetime as dt
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import TINY, only_run
from tests.tiny_training import run_training, tiny_config
from tests.report.run_dirs import write_run
from vernier.config import Config, Limits, Machine, override, override_from_text
from vernier.data.loading.loader import Loader
from vernier.devices.cpu import Cpu
from vernier.engine.inference.trained import load_trained
from vernier.engine.measured.workloads import TrainingLoad
from vernier.engine.training.checkpoint import Progress
from vernier.engine.training.loss_scaling import LossScaler
from vernier.engine.training.step_window import StepWindow
from vernier.errors import ConfigError, RunFailed
from vernier.measure.statistics.run_summary import summarize_training
from vernier.report.live.console import closing_lines
from vernier.report.logs.dllogger import write_dllogger
from vernier.report.logs.reading import open_logs
from vernier.store import RunDir

Runner = Callable[..., Any]


def _events(step_s: list[float]) -> list[dict[str, Any]]:
    return [{"kind": "start"}, {"kind": "step", "step_s": step_s, "wait_s": [s / 10 for s in step_s]}]


def _few_steps(shapes: Path, out: Path, steps: int = 6, every: int = 0, **recipe: Any) -> RunDir:
    config = replace(tiny_config(shapes, **recipe), limits=Limits(max_steps=steps, log_every_steps=every))
    run(config, out)
    return RunDir.open(only_run(out))


def test_f1_the_total_is_not_multiplied_by_the_number_of_devices() -> None:
    """Each rank recorded the global rate, and the ranks were summed."""
    alone, eight = (summarize_training(_events([0.5] * 20), global_batch=64, devices=d) for d in (1, 8))
    assert alone is not None
    assert eight is not None
    assert alone["images_per_s_total"] == eight["images_per_s_total"] == pytest.approx(128)


class FakeClock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def slows(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, seconds: float) -> None:
        """Every call of a method takes that long."""
        real = getattr(owner, name)

        def slow(*arguments: Any, **named: Any) -> Any:
            self.now_s += seconds
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, slow)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr("vernier.engine.training.loop.now_s", made)
    return made


def test_f4_and_f5_waiting_for_data_is_in_the_rate(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock started after the batch had come; or data loading was left out unless one asked for it."""
    real = Loader.batches

    def slow(self: Loader, *arguments: Any, **named: Any) -> Iterator[Any]:
        for batch in real(self, *arguments, **named):
            clock.now_s += 3.0
            yield batch

    monkeypatch.setattr(Loader, "batches", slow)
    directory = _few_steps(shapes, tmp_path)
    steps = [t for e in directory.read_events() if e["kind"] == "step" for t in e["step_s"]]
    assert steps == [pytest.approx(3.0)] * 6
    assert directory.read_status()["summary"]["training"]["images_per_s_total"] == pytest.approx(16 / 3)


def test_f6_the_reported_loss_is_that_of_all_steps_since_the_last_report(shapes: Path, tmp_path: Path) -> None:
    """Training accuracy was that of the last batch, weighted as if it were of all."""
    single, windows = (
        [e["loss"] for e in _few_steps(shapes, tmp_path / str(n), every=n).read_events() if e["kind"] == "step"]
        for n in (1, 3)
    )
    assert len(single) == 6
    assert windows == pytest.approx([np.mean(single[:3]), np.mean(single[3:])])


def test_f7_a_rate_is_never_a_mean_of_rates(tmp_path: Path) -> None:
    """The run's rate was the mean of the rates of its iterations, which is always too high."""
    uneven = [0.1, 0.3] * 50
    found = summarize_training(_events(uneven), global_batch=8, devices=1)
    assert found is not None
    assert found["images_per_s_total"] == pytest.approx(8 / 0.2, rel=0.02)
    (record,) = open_logs(write_run(tmp_path, "uneven", uneven, batch=8))
    last = write_dllogger(record, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).splitlines()[-1]
    assert json.loads(last.removeprefix("DLLL "))["data"]["train.total_ips"] == pytest.approx(8 / 0.2, rel=0.02)


def test_f7_exchanging_and_reading_the_loss_is_in_the_time_of_a_step(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iteration's clock stopped before the loss was reduced, read and logged, so that this was in no number."""
    clock.slows(monkeypatch, StepWindow, "take_losses", 2.0)
    directory = _few_steps(shapes, tmp_path, every=3)
    steps = [t for e in directory.read_events() if e["kind"] == "step" for t in e["step_s"]]
    assert steps == pytest.approx([0, 0, 2, 0, 0, 2])


def test_f9_a_cut_epoch_does_not_count_as_done(shapes: Path, tmp_path: Path, vernier_here: Runner) -> None:
    """A run stopped in mid-epoch saved the next epoch's number: the rest of the epoch was never seen."""
    arguments = ["train", "--data", str(shapes), "--out", str(tmp_path), "--train-only", "--epochs", "2", *TINY]
    assert vernier_here(*arguments, "--max-steps", "4").code == 0
    directory = RunDir.open(only_run(tmp_path))
    assert directory.checkpoints()[-1].step == 4
    assert vernier_here(*arguments, "--max-steps", "12", "--resume", "auto").code == 0
    events = directory.read_events()
    assert [e["resumed_from"] for e in events if e["kind"] == "start"] == [None, 4]
    assert sum(len(e["step_s"]) for e in events if e["kind"] == "step") == 12


def test_f10_the_loss_scale_is_in_the_checkpoint() -> None:
    """The state of the loss scaler was not saved, so that mixed precision did not go on as it had stopped."""
    machine = Machine(precision="fp16", allow_slow=True, loss_scale=1024.0)
    before, after = LossScaler(machine, torch.device("cpu")), LossScaler(machine, torch.device("cpu"))
    before._scaler._scale = torch.tensor(256.0)
    before.skipped_steps = 3
    after.load(before.state())
    assert (after.scale, after.skipped_steps) == (256.0, 3)
    assert {"scaler"} <= set(Progress.__dataclass_fields__)


def test_f11_a_run_can_read_its_own_checkpoint(shapes: Path, tmp_path: Path) -> None:
    """A checkpoint held an object that the safe loader refuses: `--resume` failed on its own files."""
    directory = _few_steps(shapes, tmp_path)
    checkpoint = directory.newest_checkpoint()
    assert checkpoint is not None
    assert {p.suffix for p in checkpoint.path.iterdir()} == {".safetensors", ".json"}  # nothing is pickled
    assert load_trained(checkpoint.path, which="latest", averaged=None).step == 6


def test_f12_every_report_has_a_loss_and_no_setting_is_ignored(shapes: Path, tmp_path: Path) -> None:
    """The training loss was always null; a setting of all configurations was read by nobody; tested size and TTA were unsaid."""
    directory = _few_steps(shapes, tmp_path)
    events = directory.read_events()
    assert all(math.isfinite(e["loss"]) for e in events if e["kind"] == "step")
    with pytest.raises(ConfigError, match="Unknown setting"):
        override_from_text(Config(), "optim.bn_wd=1")
    assert directory.read_config()["recipe"]["data"]["eval_px"] == 32
    assert [e["flip_tta"] for e in events if e["kind"] == "eval"] == [False]


def test_f13_an_image_that_cannot_be_read_is_not_left_out_of_the_result(shapes: Path, tmp_path: Path) -> None:
    """Images that failed to decode were skipped, and the metric was printed as if they had not been there."""
    data = tmp_path / "data"
    shutil.copytree(shapes, data)
    victim = sorted((data / "val").rglob("*.jpg"))[0]
    victim.write_bytes(b"no picture")
    config = tiny_config(data)
    config = override(config, "data.max_bad_images", "5")
    outcome = run(replace(config, limits=Limits(max_steps=2)), tmp_path / "runs")
    assert outcome.summary["result"]["samples"] == 50
    assert [Path(b["path"]).name for b in outcome.summary["bad_images"]] == [victim.name]
    with pytest.raises(RunFailed):
        run(replace(override(config, "data.max_bad_images", "0"), limits=Limits(max_steps=2)), tmp_path / "strict")


@pytest.mark.parametrize("batch", [16, 7])
def test_f14_no_image_is_evaluated_twice(shapes: Path, tmp_path: Path, batch: int) -> None:
    """The validation set was padded with copies until it divided."""
    config = override(tiny_config(shapes), "machine.eval_batch", batch)
    outcome = run(replace(config, limits=Limits(max_steps=1)), tmp_path)
    assert outcome.summary["result"]["samples"] == 50


def test_f15_the_device_is_waited_for_before_a_window_is_timed(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work was still queued on the device when the clock was read. The CPU stands in for a device with a queue."""
    clock.slows(monkeypatch, Cpu, "synchronize", 4.0)
    directory = _few_steps(shapes, tmp_path, every=2)
    windows = [sum(e["step_s"]) for e in directory.read_events() if e["kind"] == "step"]
    assert windows == pytest.approx([4.0] * 3)


def test_f16_the_optimisers_step_is_in_the_time_and_the_warm_up_is_not(
    shapes: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iteration's timer stopped before the optimiser's step; the first iterations were in the figures."""
    clock.slows(monkeypatch, LossScaler, "step", 5.0)
    directory = _few_steps(shapes, tmp_path)
    steps = [t for e in directory.read_events() if e["kind"] == "step" for t in e["step_s"]]
    assert steps == [pytest.approx(5.0)] * 6
    found = summarize_training(_events([30.0] + [1.0] * 20), global_batch=8, devices=1)
    assert found is not None
    assert (found["warmup_steps_excluded"], found["images_per_s_total"]) == (1, pytest.approx(8))


def test_f17_half_precision_is_measured_with_its_loss_scaling(shapes: Path) -> None:
    """The benchmark of fp16 training had no loss scaler: it was not the training that people run."""
    config = override(override(tiny_config(shapes), "machine.precision", "fp16"), "machine.allow_slow", True)
    load = TrainingLoad(config)
    try:
        load.step()
        assert load.job.step.scaler.enabled
        assert load.job.step.scaler.state()["_growth_tracker"] == 1  # it has seen the step
    finally:
        load.close()


def test_f18_a_precision_that_cannot_be_had_is_refused(vernier_here: Runner, tmp_path: Path) -> None:
    """bf16 on a device that was not listed ran fp32 without a word."""
    done = vernier_here("train", "--precision", "tf32", "--device", "cpu", "--out", str(tmp_path), "--max-steps", "1")
    assert done.code == 2
    assert "tf32" in done.err
    assert "--precision fp32" in done.err


def test_f19_per_device_and_total_are_named() -> None:
    """A table's 601 images a second for eight cards was the rate of one, and did not say so."""
    found = summarize_training(_events([0.5] * 20), global_batch=64, devices=8)
    assert found is not None
    assert (found["images_per_s_total"], found["images_per_s_per_device"]) == (pytest.approx(128), pytest.approx(16))
    summary = {"result": None, "best": None, "training": found, "spent_s": {"total": 10.0}}
    (line,) = [text for text in closing_lines(summary, "run", "finished") if text.startswith("speed")]
    assert "128 img/s in all on 8 devices" in line
