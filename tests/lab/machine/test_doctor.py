import os
import shutil
from collections import namedtuple
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from vernier.lab.machine import doctor
from vernier.lab.machine.doctor import examine, list_extras
from vernier.measure import environment
from vernier.records.codec import encode

Usage = namedtuple("Usage", "total used free")


def test_a_missing_package_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(environment.importlib.metadata, "version", not_installed)
    parts = {part.extra: part for part in list_extras()}
    assert parts["onnx"].missing == ("onnx", "onnxscript", "onnxruntime")
    assert parts["mlflow"].missing == ("mlflow-skinny|mlflow",)
    advice = examine().advice
    assert "onnx (export to ONNX): pip install 'vernier[onnx]'" in advice
    assert not any("wandb" in line or "mlflow" in line for line in advice)


def test_the_processor_and_the_driver_are_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vernier.devices.cpu.instruction_sets", lambda: frozenset({"avx2", "amx_tile", "sse"}))
    monkeypatch.setattr(doctor, "_nvidia_driver", lambda: "550.54.14")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    examination = examine()
    assert examination.machine.instructions == ("AVX2", "AMX")
    assert examination.machine.architecture == os.uname().machine
    assert (examination.machine.cache, examination.machine.data) == (str(tmp_path), str(tmp_path / "data"))
    if all(d.device == "cpu" for d in examination.devices):
        assert any("NVIDIA driver 550.54.14 is installed, but PyTorch sees no GPU" in a for a in examination.advice)


def test_one_of_two_packages_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: "1.0" if name == "mlflow" else None)
    assert next(part for part in list_extras() if part.extra == "mlflow").missing == ()


def test_a_busy_machine_and_a_full_disk_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (400.0, 0.0, 0.0))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10**9))
    advice = " ".join(examine().advice)
    assert "other programs are busy (load 400.0" in advice
    assert "only 1.0 GB are free" in advice


def test_every_device_of_this_machine_is_listed_with_what_it_supports() -> None:
    tree = encode(examine())
    assert {"index", "name", "uuid", "device"} <= set(tree["devices"][0])
    assert {a["precision"] for a in tree["abilities"] if a["device"] == "cpu"} == {"fp32", "tf32", "bf16", "fp16"}
    assert all(set(part) == {"extra", "for", "missing", "install"} for part in tree["extras"])
