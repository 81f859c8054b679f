"""Trials in processes of their own: what crashes, hangs or refuses is a line and not the end."""

import os
import sys
import time
from pathlib import Path

import pytest

from vernier.devices import kinds
from vernier.lab import worker
from vernier.lab.machine import trials
from vernier.lab.machine.trials import try_devices
from vernier.records.bench import TrialRequest

ANSWER = """
import json, sys
request, answer = sys.argv[1:]
trial = json.load(open(request))["trial"]
if trial == "train":
    {train}
info = {{"index": 0, "name": "imagined", "uuid": "imagined-0"}}
json.dump({{"status": "ok", "seen": trial, "devices": [info]}}, open(answer, "w"))
"""
"""A process that answers like `vernier bench arm`, with a driver that does something else when training."""


def with_driver(monkeypatch: pytest.MonkeyPatch, train: str) -> None:
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", ANSWER.format(train=train)])
    monkeypatch.setattr(trials, "PRECISIONS", ("fp32",))


def test_a_driver_that_crashes_is_a_line_and_the_other_trials_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    (device,) = try_devices(("cpu",))
    outcomes = {trial.name: (trial.outcome, trial.note) for trial in device.trials}
    assert outcomes["train fp32"] == ("failed", "crashed with SIGSEGV: no message")
    assert outcomes["evaluate"] == ("works", "evaluate")
    assert device.info is not None
    assert device.info.uuid == "imagined-0"


def test_a_device_that_is_gone_after_a_failure_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    script = ANSWER.format(train=f"open({str(gone)!r}, 'w'); raise SystemExit('lost')").replace(
        "info =",
        f"import os\nif trial != 'identity' and os.path.exists({str(gone)!r}): raise SystemExit('lost')\ninfo =",
    )
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", script])
    (device,) = try_devices(("cpu",))
    first, *others = device.trials
    assert (first.name, first.outcome, first.note) == ("train fp32", "failed", "lost")
    assert {(t.outcome, t.note) for t in others} == {("untried", "the device no longer answers since 'train fp32'")}
    assert "events" in {t.name for t in others}


def test_a_driver_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    start = (
        f"import subprocess, time; p = subprocess.Popen(['sleep', '600']); open({str(pid)!r}, 'w').write(str(p.pid))"
    )
    with_driver(monkeypatch, f"{start}; time.sleep(600)")
    request = TrialRequest(trial="train", config={})
    trial, answer = trials._run(trials._Attempt(name="train", request=request, variables={}, limit_s=3.0))
    assert (trial.outcome, trial.note, answer) == ("failed", "not done after 3 s, and ended", None)
    limit_s = time.monotonic() + 10
    while Path(f"/proc/{pid.read_text()}").exists() and _state(int(pid.read_text())) != "Z":
        assert time.monotonic() < limit_s, "the process that the trial started still runs"
        time.sleep(0.02)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.slow
def test_a_kind_that_is_not_here_is_left_out_and_one_that_crashes_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(try_devices((next(name for name, kind in kinds().items() if not kind.available()),))) == []
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", "raise SystemExit('vernier: no driver')"])
    (device,) = try_devices(("cuda",))
    assert device.info is None
    assert [(trial.outcome, trial.note) for trial in device.trials] == [("failed", "no driver")]


def test_the_variables_that_choose_a_device_reach_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, "import os; raise SystemExit(os.environ['ONLY'])")
    request = TrialRequest(trial="train", config={})
    trial, _ = trials._run(trials._Attempt(name="train", request=request, variables={"ONLY": "device 3"}))
    assert trial.note == "device 3"
    assert "ONLY" not in os.environ


@pytest.mark.slow
def test_a_real_process_trains() -> None:
    trial, answer = trials._run(trials._attempt("train fp32", "cpu", "train"))
    assert trial.outcome == "works", trial.note
    assert answer is not None
    assert trial.note.startswith("loss ")
