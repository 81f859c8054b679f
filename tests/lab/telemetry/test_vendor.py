"""NVML and HLML are simulated below the vendors' real Python modules, hl-smi as a real program."""

import ctypes
from pathlib import Path
from unittest import mock

import pytest

from tests.lab.telemetry import gaudi_host, nvidia_host
from tests.lab.telemetry.gaudi_host import HlmlLibrary, install_hlml, put_hl_smi
from tests.lab.telemetry.nvidia_host import NvmlLibrary, install_nvml, uuid_of, watts_of
from vernier.lab.records.telemetry import Reading
from vernier.lab.telemetry import vendor
from vernier.lab.telemetry.vendor import HLML, NVML, HlSmiSensors, LibrarySensors

pynvml = pytest.importorskip("pynvml")
pyhlml = pytest.importorskip("pyhlml")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    library = NvmlLibrary()
    install_nvml(library, monkeypatch.setattr)
    return library


@pytest.fixture
def hlml(monkeypatch: pytest.MonkeyPatch) -> HlmlLibrary:
    library = HlmlLibrary()
    install_hlml(library, monkeypatch.setattr)
    return library


# ----------------------------------------------------------------------------------------------------------------- NVML


def test_only_the_gpus_in_use_are_read_and_in_their_units(nvml: NvmlLibrary) -> None:
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(5), uuid_of(4)])
    assert [(d.index, d.uuid) for d in sensors.devices] == [(0, uuid_of(5)), (1, uuid_of(4))]
    five, four = sensors.read()
    assert 0 < (four.energy_j or 0) < (five.energy_j or 0)
    assert five == Reading(
        util_pct=50,
        mem_used_bytes=6 * 2**30,
        clock_mhz=1050,
        memory_clock_mhz=1050,
        temperature_c=35,
        power_w=watts_of(5),
        power_limit_w=400.0,
        energy_j=five.energy_j,
        throttle=("power cap",),
    )
    assert (four.power_w, four.throttle, sensors.missing) == (watts_of(4), (), [])


def test_a_gpu_that_nvml_does_not_know_has_no_sensors_rather_than_those_of_others(nvml: NvmlLibrary) -> None:
    sensors = LibrarySensors(NVML, pynvml, ["GPU-of-another-host", None, uuid_of(2)])
    assert [(d.index, d.uuid) for d in sensors.devices] == [(2, uuid_of(2))]
    assert [(m.device, m.sensor) for m in sensors.missing] == [(0, "all"), (1, "all")]
    assert sensors.missing[0].why == "GPU-of-another-host is not recognised: nvidia-ml-py: Not Found"
    assert "no UUID" in sensors.missing[1].why
    assert len(sensors.read()) == 1


def test_what_a_card_does_not_have_or_may_not_tell_is_named(nvml: NvmlLibrary) -> None:
    nvml.refused = {
        "nvmlDeviceGetTotalEnergyConsumption": nvidia_host.NOT_SUPPORTED,
        "nvmlDeviceGetPowerUsage": nvidia_host.NO_PERMISSION,
    }
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(0)])
    assert [(m.sensor, m.why) for m in sensors.missing] == [
        ("power_w", "nvidia-ml-py: Insufficient Permissions"),
        ("energy_j", "nvidia-ml-py: Not Supported"),
    ]
    assert sensors.read()[0].temperature_c == 30


def test_a_gpu_that_vanishes_is_missing_from_then_on_and_others_are_still_read(nvml: NvmlLibrary) -> None:
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(4), uuid_of(5)])
    sensors.read()
    nvml.lost.add(4)
    assert sensors.read()[0] == Reading()
    gone, there = sensors.read()
    assert (gone, there.power_w) == (Reading(), watts_of(5))
    assert [(m.device, m.sensor, m.why) for m in sensors.missing] == [(0, "all", "nvidia-ml-py: GPU is lost")]
    nvml.refused["nvmlShutdown"] = nvidia_host.DRIVER_NOT_LOADED
    sensors.close()


def test_one_sensor_that_fails_later_leaves_the_others(nvml: NvmlLibrary) -> None:
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(4)])
    nvml.refused["nvmlDeviceGetPowerUsage"] = nvidia_host.NO_PERMISSION
    (reading,) = sensors.read()
    assert (reading.power_w, reading.temperature_c) == (None, 34)
    assert [m.sensor for m in sensors.missing] == ["power_w"]


def test_a_mig_instance_has_its_own_memory_and_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvml(NvmlLibrary(mig=True), monkeypatch.setattr)
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(7, instance=1)])
    assert sensors.read() == [Reading(mem_used_bytes=10 * 2.0**30)]
    why = {m.sensor: m.why for m in sensors.missing}
    assert "its GPU's is that of all instances" in why["power_w"]
    assert why["clock_mhz"] == "nvidia-ml-py: Not Supported"


def test_the_sensors_of_a_gpu_that_is_split_are_not_those_of_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvml(NvmlLibrary(mig=True), monkeypatch.setattr)
    sensors = LibrarySensors(NVML, pynvml, [uuid_of(7)])
    assert sensors.devices == ()
    assert "split into MIG instances" in sensors.missing[0].why


@pytest.mark.parametrize(("library", "module"), [(NVML, "pynvml"), (HLML, "pyhlml")])
def test_every_function_and_argument_exists_in_the_real_module(library: vendor.Library, module: str) -> None:
    """An autospec has the functions and signatures of the real module and nothing else."""
    real = pytest.importorskip(module)
    spec = mock.create_autospec(real, spec_set=True)
    for name in vars(real):
        if name.startswith(f"{library.prefix}DeviceGet"):
            getattr(spec, name).return_value = mock.MagicMock(__truediv__=lambda *_: 1, __and__=lambda *_: 0)
    for getter in library.getters.values():
        getter(spec, object())
    for name, arguments in {"Init": (), "Shutdown": (), "DeviceGetHandleByUUID": ("",), "DeviceGetName": (1,)}.items():
        getattr(spec, f"{library.prefix}{name}")(*arguments)
    assert issubclass(library.error_of(real), Exception)
    assert not hasattr(spec, f"{library.prefix}DeviceGetPowerUssage")


def test_the_names_of_errors_of_a_lost_device_exist() -> None:
    assert all(issubclass(getattr(pynvml, name), pynvml.NVMLError) for name in NVML.lost)
    from pyhlml import hlml_error

    hlml_error.ErrorsAsClass()
    assert all(issubclass(getattr(hlml_error, name), pyhlml.HLMLError) for name in HLML.lost)


def test_a_misspelt_function_is_an_error_and_no_missing_sensor(
    nvml: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NVML.getters, "power_w", lambda m, h: m.nvmlDeviceGetPowerUssage(h))
    with pytest.raises(AttributeError, match="nvmlDeviceGetPowerUssage"):
        LibrarySensors(NVML, pynvml, [uuid_of(0)])


# ---------------------------------------------------------------------------------------------------------------- Gaudi


def test_gaudi_modules_are_told_apart_although_the_library_has_one_handle_for_all(hlml: HlmlLibrary) -> None:
    """pyhlml returns the same ctypes object for every device: without a copy all readings would be of the last one."""
    assert pyhlml.hlmlInit() is None
    assert pyhlml.hlmlDeviceGetHandleByIndex(0) is pyhlml.hlmlDeviceGetHandleByIndex(1)
    sensors = LibrarySensors(HLML, pyhlml, [gaudi_host.uuid_of(4), gaudi_host.uuid_of(6)])
    assert [d.name for d in sensors.devices] == ["hl-225", "hl-225"]
    assert sensors.read() == [
        Reading(
            util_pct=10 * module,
            mem_used_bytes=(module + 1) * 2**30,
            clock_mhz=1650,
            temperature_c=30 + module,
            power_w=gaudi_host.watts_of(module),
            power_limit_w=600,
            energy_j=5.0 * (module + 1),
            throttle=("thermal",) if module == 4 else (),
        )
        for module in (4, 6)
    ]


def test_a_gaudi_that_vanishes_is_missing_with_the_name_of_its_error(hlml: HlmlLibrary) -> None:
    sensors = LibrarySensors(HLML, pyhlml, [gaudi_host.uuid_of(4), gaudi_host.uuid_of(6)])
    hlml.lost.add(6)
    four, six = sensors.read()
    assert (four.power_w, six) == (gaudi_host.watts_of(4), Reading())
    assert [(m.device, m.sensor) for m in sensors.missing] == [(1, "all")]
    assert sensors.missing[0].why.endswith("(AipIsLost)")


def test_pyhlml_without_its_library_says_nothing_on_the_output_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", mock.Mock(side_effect=OSError("no such file")))
    with pytest.raises(pyhlml.HLMLError):
        LibrarySensors(HLML, pyhlml, [gaudi_host.uuid_of(0)])
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------------------------------------------------- hl-smi


@pytest.mark.parametrize("units", [False, True])
def test_hl_smi_is_read_for_the_modules_in_use_with_and_without_units(tmp_path: Path, units: bool) -> None:
    script = put_hl_smi(tmp_path, units=units)
    sensors = HlSmiSensors([gaudi_host.uuid_of(4), gaudi_host.uuid_of(0)], str(script))
    four, zero = sensors.read()
    assert four == Reading(util_pct=40.0, mem_used_bytes=676 * 2.0**20, temperature_c=34.0, power_w=240.0)
    assert zero.temperature_c is None
    missing = {(m.device, m.sensor): m.why for m in sensors.missing}
    assert {(0, "clock_mhz"), (0, "energy_j"), (1, "energy_j")} <= set(missing)
    assert missing[1, "temperature_c"] == "hl-smi reports 'N/A'"


def test_a_module_that_hl_smi_does_not_list_has_no_sensors(tmp_path: Path) -> None:
    sensors = HlSmiSensors(["01P0-elsewhere", None], str(put_hl_smi(tmp_path)))
    assert sensors.devices == ()
    assert "01P0-elsewhere is not recognised: hl-smi lists" in sensors.missing[0].why
    assert "no UUID" in sensors.missing[1].why
    assert sensors.read() == []


def test_an_hl_smi_that_hangs_or_fails_is_a_missing_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = put_hl_smi(tmp_path / "slow", f"if [ -e {tmp_path}/hang ]; then exec sleep 60; fi")
    sensors = HlSmiSensors([gaudi_host.uuid_of(4)], str(slow))
    (tmp_path / "hang").touch()
    monkeypatch.setattr(vendor, "HL_SMI_TIMEOUT_S", 0.2)
    assert sensors.read() == [Reading()]
    assert sensors.read() == [Reading()]  # at once: a command that hung is not asked again
    assert [(m.sensor, "timed out" in m.why) for m in sensors.missing if m.sensor == "all"] == [("all", True)]
    with pytest.raises(vendor.HL_SMI_FAILURES, match="exit status 3"):
        HlSmiSensors([gaudi_host.uuid_of(4)], str(put_hl_smi(tmp_path / "failing", "exit 3")))
