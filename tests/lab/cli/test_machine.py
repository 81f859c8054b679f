"""`vernier doctor`: one screen, the probe, and what is missing."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Done, command
from tests.refusals import config_error_of
from vernier.lab.machine import trials
from vernier.lab.machine.trials import Trial, TriedDevice
from vernier.records.environment import DeviceInfo

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
    from vernier.lab.machine import probe
    from vernier.lab.measured import decode_probe as decoding

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
    from vernier.lab.machine import doctor

    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    shown = vernier_here("doctor", "--no-probe").out
    assert "TensorBoard's event files of every run): pip install 'vernier[tensorboard]'" in shown
    assert "pip install 'vernier[onnx]'" in shown


def tried(names: tuple[str, ...], on_trial: Callable[[str], None]) -> Iterator[TriedDevice]:
    """Two devices of a machine with two kinds, as `try_devices` gives them."""
    on_trial("cuda 0: train fp32")
    works = Trial(name="train fp32", outcome="works", seconds=7.2, note="loss 2.303, peak memory 12.5 MiB")
    crash = Trial(name="compile", outcome="failed", seconds=300.0, note="not done after 300 s, and ended " * 9)
    info = DeviceInfo(index=0, name="NVIDIA A100-SXM4-80GB", uuid="GPU-1", memory_bytes=80 * 2**30, capability="8.0")
    if "cuda" in names:
        yield TriedDevice(device="cuda", info=info, about="collectives nccl", trials=(works, crash))
    if "cpu" in names:
        yield TriedDevice(device="cpu", info=None, about="", trials=(works,))


def test_the_page_of_devices_has_80_columns_and_every_trial(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "try_devices", tried)
    done = vernier_here("doctor", "--test-devices")
    assert done.code == 0
    assert "trying cuda 0: train fp32" in done.err
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "\x1b[" not in done.out
    for words in (
        "0: NVIDIA A100-SXM4-80GB, 80 GiB, capability 8.0, GPU-1; collectives",
        "train fp32     works        7 s  loss 2.303, peak memory 12.5 MiB",
        "compile        failed     300 s  not done after 300 s",
        "could not be identified",
        "not here   hpu, xpu, mps",
        "torch",
    ):
        assert words in done.out
    page = vernier_here("doctor", "--devices", "--device", "cpu", "--json").json()
    assert [device["device"] for device in page["tried"]] == ["cpu"]
    assert page["absent"] == []


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("--test-devices --device cdua", {"machine.device": "cdua"}, []),
        ("--test-devices --device mps", {"machine.device": "mps"}, []),
        ("--device cpu", {"machine.device": "cpu"}, ["doctor"]),
        ("--seconds 0", {"time": "0s"}, []),
        ("--time 601s", {"time": "601s"}, []),
        ("--time 10", {"time": "10"}, []),
    ],
)
def test_a_device_or_a_time_that_is_wrong_is_refused(
    words: str, given: dict[str, str], works: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "try_devices", tried)
    error = config_error_of("doctor", *words.split())
    assert (error.given, [name for name, _ in error.works]) == (given, works)


@pytest.mark.slow
def test_ctrl_c_ends_the_trial_and_its_process() -> None:
    child = subprocess.Popen(
        command("doctor", "--devices", "--device", "cpu"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    assert "identity" in child.stderr.readline()
    assert "train" in child.stderr.readline()
    limit_s = time.monotonic() + 60
    started: list[psutil.Process] = []
    while not started or started[0].cpu_times().user < 0.5:  # it is well under way, not just being started
        assert time.monotonic() < limit_s, "no trial is started"
        time.sleep(0.01)
        started = psutil.Process(child.pid).children()
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    assert not any(trial.is_running() for trial in started)
