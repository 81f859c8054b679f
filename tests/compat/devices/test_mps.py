"""Metal, against specs of torch.mps."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from vernier.compat.devices.mps import Mps
from vernier.devices import cpu


def test_a_mac_has_one_device_named_after_its_chip(mps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(cpu, "_cpuinfo", lambda *names: "")
    answer = subprocess.CompletedProcess([], 0, stdout="Apple M2 Pro\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: answer if command[0] == "sysctl" else None)
    assert [(device.index, device.name) for device in Mps().identity()] == [(0, "Apple M2 Pro GPU")]
    assert Mps().torch_device(3) == torch.device("mps")


def test_an_event_measures_from_its_own_record(mps: Any) -> None:
    start = Mps().record_event()
    mps.Event.assert_called_once_with(enable_timing=True)
    start.record.assert_called_once_with()
    assert Mps().elapsed_s(start, Mps().record_event()) == 1.5
