import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from tests.lab.telemetry import gaudi_host, nvidia_host
from tests.lab.telemetry.gaudi_host import path_with, put_hl_smi
from tests.lab.telemetry.nvidia_host import NvmlLibrary, install_nvml, uuid_of
from vernier.devices.cpu import Cpu
from vernier.errors import RunFailed
from vernier.lab.records.telemetry import Reading
from vernier.lab.telemetry.sensors import FIELDS, describe_unknown_devices, open_sensors
from vernier.lab.telemetry.vendor import NVML


def test_every_field_of_a_reading_is_explained() -> None:
    assert set(FIELDS) == {f.name for f in fields(Reading)}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    pytest.importorskip("pynvml")
    library = NvmlLibrary()
    install_nvml(library, monkeypatch.setattr)
    return library


@pytest.fixture
def without_pyhlml(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.import_module

    def find_others(name: str) -> object:
        if name == "pyhlml":
            raise ModuleNotFoundError("No module named 'pyhlml'")
        return find(name)

    monkeypatch.setattr(importlib, "import_module", find_others)


def test_of_eight_gpus_those_in_use_are_opened_once_each(nvml: NvmlLibrary) -> None:
    opened, missing = open_sensors("cuda", [uuid_of(4), uuid_of(5), uuid_of(4)])
    assert [[d.uuid for d in s.devices] for s in opened] == [[uuid_of(4), uuid_of(5)], [None]]
    assert not [m for m in missing if m.kind == "cuda"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (nvidia_host.DRIVER_NOT_LOADED, "nvidia-ml-py: Driver Not Loaded"),
        (nvidia_host.NO_PERMISSION, "nvidia-ml-py: Insufficient Permissions"),
    ],
)
def test_nvml_that_cannot_be_initialised_is_missing_with_the_reason(nvml: NvmlLibrary, code: int, why: str) -> None:
    nvml.refused["nvmlInitWithFlags"] = code
    opened, missing = open_sensors("cuda", [uuid_of(4)])
    assert [s.kind for s in opened] == ["cpu"]
    assert describe_unknown_devices(missing) == [f"no sensors of cuda: {why}"]


def test_a_machine_without_nvml_is_missing_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    install_nvml(None, monkeypatch.setattr)
    _, missing = open_sensors("cuda", [uuid_of(4)])
    assert describe_unknown_devices(missing) == ["no sensors of cuda: nvidia-ml-py: NVML Shared Library Not Found"]


def test_a_function_that_the_library_does_not_have_fails_loudly(
    nvml: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NVML.getters, "power_w", lambda m, h: m.nvmlDeviceGetPowerUssage(h))
    with pytest.raises(RunFailed, match=r"nvmlDeviceGetPowerUssage.*pip install -U nvidia-ml-py") as error:
        open_sensors("cuda", [uuid_of(4)])
    assert error.value.works == [("machine.telemetry_hz", 0)]


def test_a_gpu_of_another_maker_is_not_looked_for_in_nvml(nvml: NvmlLibrary) -> None:
    _, missing = open_sensors("cuda", ["73f1c0c5-0000-1000-80b7-1002c0a8d3a1"])
    assert "NVIDIA's GPUs only" in missing[0].why


def test_a_gaudi_host_without_pyhlml_is_read_through_hl_smi(
    tmp_path: Path, without_pyhlml: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_hl_smi(tmp_path)
    monkeypatch.setenv("PATH", path_with(tmp_path))
    opened, _ = open_sensors("hpu", [gaudi_host.uuid_of(6)])
    assert [[d.uuid for d in s.devices] for s in opened] == [[gaudi_host.uuid_of(6)], [None]]
    assert opened[0].read()[0].power_w == gaudi_host.watts_of(6)


def test_an_hl_smi_that_fails_is_missing_with_both_reasons(
    tmp_path: Path, without_pyhlml: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_hl_smi(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", path_with(tmp_path))
    _, missing = open_sensors("hpu", [gaudi_host.uuid_of(6)])
    assert "pyhlml: No module named 'pyhlml'; hl-smi: " in missing[0].why


def test_an_accelerator_without_its_library_is_missing_with_the_reason() -> None:
    sensors, missing = open_sensors("hpu", ["01P0"])
    assert [s.kind for s in sensors] == ["cpu"]
    assert any(m.kind == "hpu" and m.sensor == "all" and "pyhlml" in m.why for m in missing)


def test_a_device_can_bring_sensors_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        kind, devices, missing = "cpu", (), ()

        def read(self) -> list[Reading]:
            return []

        def close(self) -> None: ...

    own = Own()
    monkeypatch.setattr(Cpu, "sensors", lambda self, uuids: own if uuids == ("a uuid",) else None)
    opened, _ = open_sensors("cpu", ["a uuid", "a uuid"])
    assert opened[0] is own
    assert len(open_sensors("cpu", ["another"])[0]) == 1


def test_a_device_kind_without_a_sensor_library_is_missing_too() -> None:
    _, missing = open_sensors("mps")
    assert (missing[0].kind, missing[0].device, missing[0].why) == ("mps", None, "no sensor library is known for mps")
