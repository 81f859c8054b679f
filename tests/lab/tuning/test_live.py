"""Processes that take turns: real ones, stopped in between, ended with the context, and failures with their reason."""

import threading
from dataclasses import replace
from pathlib import Path

import psutil

from tests.tiny_training import tiny_config
from vernier.config import Config, override
from vernier.lab.tuning.live import LiveArm, LiveStable
from vernier.lab.tuning.search import Failed
from vernier.references import use


def small(shapes: Path) -> Config:
    return override(tiny_config(shapes), "global_batch", 4)


def all_stopped(processes: list[psutil.Process]) -> bool:
    """Whether all are stopped, or will be within 10 s: a signal takes a moment to arrive."""
    return any(
        all(p.status() == psutil.STATUS_STOPPED for p in processes) or threading.Event().wait(0.05) for _ in range(200)
    )


def test_arms_take_turns_and_stand_still_in_between(shapes: Path) -> None:
    config = small(shapes)
    refused = replace(config, machine=replace(config.machine, precision="tf32"))
    with LiveStable("train").open({"a": config, "refused": refused}, 120) as arms:
        refusal, a = arms["refused"], arms["a"]
        assert isinstance(refusal, Failed)
        assert "tf32" in str(refusal)
        assert isinstance(a, LiveArm)
        assert a.ready.images_per_step == 4
        assert a.memory_bytes() > 2**20
        processes = a._worker._tree()
        assert all_stopped(processes)
        assert a.turn() > 0
        assert a.turn() > 0
        assert all_stopped(processes)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_a_late_arm_is_ended(shapes: Path) -> None:
    with LiveStable("train").open({"a": small(shapes)}, 0.2) as arms:
        late = arms["a"]
        assert isinstance(late, Failed)
        assert "not ready" in str(late)
        assert use("time") in str(late)


def test_no_more_arms_than_memory_allows(shapes: Path) -> None:
    stable = LiveStable("train")
    stable._memory_bytes = 2**60
    with stable.open({"a": small(shapes), "b": small(shapes)}, 1) as arms:
        assert all(isinstance(arm, Failed) and "memory is enough for 0" in str(arm) for arm in arms.values())
