"""What a person sees while a run goes on, without a terminal and with one."""

import io
from typing import Any

import pytest
from rich.console import Console

from vernier.report.live import console
from vernier.report.live.console import ConsoleObserver, closing_lines, duration, plural

START: dict[str, Any] = {
    "kind": "start", "recipe": "r", "model": "m", "parameters": 1234, "classes": 1, "data": "d[/]", "train_samples": 100, "val_samples": 0,
    "device": "cpu", "world": 2, "threads": 1, "precision": "fp32", "mode": "eager", "workers": 2, "global_batch": 8, "process_batch": 2,
    "accumulation": 2, "steps_per_epoch": 12, "epochs": 2.0, "total_steps": 24, "stop_step": 20, "lr": 0.1, "seed": 1, "run": "runs/[x]",
    "resumed_from": 3,
}  # fmt: skip


def _step(step: int) -> dict[str, Any]:
    return {
        "kind": "step",
        "step": step,
        "epoch": step / 12,
        "loss": 1.5,
        "lr": 0.1,
        "samples": 16,
        "step_s": [1.0, 1.0],
        "wait_s": [0.5, 0.0],
    }


def _plain() -> tuple[ConsoleObserver, io.StringIO]:
    out = io.StringIO()
    return ConsoleObserver(Console(file=out, width=200)), out


def test_plain_lines_say_what_was_derived_and_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_EVERY_S", 0.0)
    watcher, out = _plain()
    with watcher:
        watcher.emit(START)
        watcher.emit(_step(5))
    text = out.getvalue()
    assert "8 = 2 processes x 2 images x 2 accumulation steps" in text
    assert "stopping at 20" in text
    assert "going on from step 3" in text
    assert "step 5/20" in text
    assert "8 img/s" in text
    assert "data wait 25 %" in text
    assert "eta 0:15" in text
    assert "runs/[x]" in text
    assert "\x1b" not in text


def test_lines_come_every_few_seconds_not_every_step() -> None:
    watcher, out = _plain()
    with watcher:
        watcher.emit(START)
        for step in range(4, 20):
            watcher.emit(_step(step))
    assert "img/s" not in out.getvalue()


def test_a_long_step_never_looks_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_LIMIT_S", 0.0)
    watcher, out = _plain()
    with watcher:
        watcher.emit(START)
        watcher._heart.join(1.5)
    assert "step 4 still going" in out.getvalue()


def test_partial_results_are_called_so() -> None:
    result = {"top1": 1.0, "top5": 2.0, "loss": 3.0, "averaged": True, "exact": False, "samples": 7}
    summary = {"result": result, "training": None, "best": None, "step": 9, "spent_s": {"total": 3661.0}}
    lines = "\n".join(closing_lines(summary, "runs/x", "finished"))
    assert "PART of the validation set" in lines
    assert "averaged weights at step 9" in lines
    assert "1:01:01" in lines


def test_words() -> None:
    assert [plural(1, "process"), plural(2, "process"), plural(1000, "step")] == [
        "1 process",
        "2 processes",
        "1,000 steps",
    ]
    assert [duration(59.6), duration(3600)] == ["1:00", "1:00:00"]
