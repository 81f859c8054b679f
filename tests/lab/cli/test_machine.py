"""`vernier doctor`: one screen, and what is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

Vernier = Callable[..., Done]


def test_doctor_fits_on_a_screen_and_says_what_can_be_done(vernier_here: Vernier) -> None:
    done = vernier_here("doctor")
    lines = done.out.splitlines()
    assert len(lines) <= 40
    assert "\x1b[" not in done.out
    for word in (
        "machine",
        "processor",
        "NVIDIA driver",
        "folders    cache",
        "next       vernier train",
        "threads",
        "device",
        "extras",
        "fp32 yes",
        "tf32 refused",
        "advice",
    ):
        assert word in done.out
    found = vernier_here("doctor", "--json").json()
    assert found["machine"]["disk_free_bytes"] > 0
    assert all(part["install"] for part in found["extras"])


def test_what_is_missing_is_named_with_its_command_absence_faked(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vernier.lab.machine import doctor

    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    shown = vernier_here("doctor").out
    assert "TensorBoard's event files of every run): pip install 'vernier[tensorboard]'" in shown
    assert "pip install 'vernier[onnx]'" in shown
