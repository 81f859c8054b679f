"""`vernier doctor`: one screen, the probe, and what is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

Vernier = Callable[..., Done]


def test_doctor_fits_on_a_screen_and_says_what_can_be_done(vernier_here: Vernier) -> None:
    done = vernier_here("doctor", "--no-probe")
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
        "speed",
        "extras",
        "fp32 yes",
        "tf32 refused",
        "advice",
    ):
        assert word in done.out
    found = vernier_here("doctor", "--no-probe", "--json").json()
    assert found["probe"] is None
    assert found["machine"]["disk_free_bytes"] > 0
    assert all(part["install"] for part in found["extras"])


def test_the_probe_trains_and_decodes(vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch) -> None:
    from vernier.engine.measured import decode_probe as decoding
    from vernier.measure.machine import probe

    monkeypatch.setattr(decoding, "_PX", 64)
    monkeypatch.setattr(probe, "PX", 32)
    monkeypatch.setattr(probe, "CPU_BATCH", 2)
    found = vernier_here("doctor", "--seconds", "0.1", "--json").json()["probe"]
    for one in found["training"]:
        assert 0 < one["slowest"] <= one["images_per_s"] <= one["fastest"]
        assert one["steps"] >= 2
    read = found["decoding"]
    assert 0 < read["slowest"] <= read["images_per_s_per_core"] <= read["fastest"]


def test_what_is_missing_is_named_with_its_command_absence_faked(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vernier.measure.machine import doctor

    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    shown = vernier_here("doctor", "--no-probe").out
    assert "TensorBoard's event files of every run): pip install 'vernier[tensorboard]'" in shown
    assert "pip install 'vernier[onnx]'" in shown
