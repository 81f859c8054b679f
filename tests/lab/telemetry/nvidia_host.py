"""A host with eight NVIDIA GPUs, simulated below the vendor's own Python module and below PyTorch's.

`pynvml` is the real one; only the C library it loads is replaced, by functions with C's arguments. As with the real
library, every GPU of the host is listed, whatever CUDA_VISIBLE_DEVICES says. Every GPU has its own power, clock and
temperature, so a figure shows whose it is. CUDA's side is `SimulatedCuda`: the devices that CUDA would show, computed
on the CPU. `environment` carries the host into processes of commands, through a sitecustomize module.
"""

# ruff: noqa: N802 -- the functions have the names of the C library

import ctypes
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from vernier import devices
from vernier.devices import cuda as cuda_module
from vernier.devices.base import Answer
from vernier.devices.cpu import Cpu
from vernier.devices.cuda import Cuda
from vernier.records.environment import DeviceInfo

GPUS = 8
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 4, 6, 9, 15
_HOST_VARIABLE = "VERNIER_TEST_NVIDIA_HOST"
_MIG_PARENT, _MIG_INSTANCES = 7, 2
RealCuda = Cuda


def uuid_of(gpu: int, instance: int | None = None) -> str:
    """The UUID of a GPU, or of a MIG instance of it, as NVIDIA's driver writes them."""
    prefix, part = ("GPU", 0) if instance is None else ("MIG", instance + 1)
    return f"{prefix}-{gpu:08x}-0000-4000-8000-{part:012x}"


def watts_of(gpu: int) -> float:
    return 100.0 + 10 * gpu


class NvmlLibrary:
    """libnvidia-ml.so.1 of such a host; it has the functions that Vernier needs, or needed, and no others.

    `refused` gives the return code of functions that fail, `lost` the GPUs that fell off the bus, `mig` whether the
    last GPU is split into two instances.
    """

    def __init__(self, *, mig: bool = False, refused: dict[str, int] | None = None) -> None:
        self.mig, self.refused, self.lost = mig, dict(refused or {}), set[int]()
        self._uuids = [uuid_of(gpu) for gpu in range(GPUS)]
        if mig:
            self._uuids += [uuid_of(_MIG_PARENT, instance) for instance in range(_MIG_INSTANCES)]

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("nvml"):
            return value
        return lambda *arguments: self.refused.get(name) or value(*arguments)

    def nvmlInitWithFlags(self, flags: int) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = GPUS
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        return self._give_handle(index.value, device)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        name = uuid.value.decode()
        return self._give_handle(self._uuids.index(name), device) if name in self._uuids else NOT_FOUND

    def _give_handle(self, number: int, device: Any) -> int:
        handle = ctypes.c_void_p(number + 1)
        ctypes.memmove(ctypes.addressof(device._obj), ctypes.addressof(handle), ctypes.sizeof(handle))
        return GPU_IS_LOST if number in self.lost else 0

    def _fill(self, handle: Any, fill: Callable[[int], None], *, of_instances: bool = False) -> int:
        number = ctypes.cast(handle, ctypes.c_void_p).value - 1  # type: ignore[operator]
        if number in self.lost:
            return GPU_IS_LOST
        if number >= GPUS and not of_instances:
            return NOT_SUPPORTED
        fill(number)
        return 0

    def nvmlDeviceGetName(self, handle: Any, name: Any, length: Any) -> int:
        return self._fill(handle, lambda _: setattr(name, "value", b"NVIDIA A100-SXM4-80GB"), of_instances=True)

    def nvmlDeviceGetUUID(self, handle: Any, uuid: Any, length: Any) -> int:
        return self._fill(handle, lambda n: setattr(uuid, "value", self._uuids[n].encode()), of_instances=True)

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        return self._fill(handle, lambda n: setattr(current._obj, "value", int(self.mig and n == _MIG_PARENT)))

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        return self._fill(handle, lambda n: setattr(rates._obj, "gpu", 10 * n))

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        return self._fill(handle, lambda n: setattr(memory._obj, "used", (n + 1) << 30), of_instances=True)

    def nvmlDeviceGetClockInfo(self, handle: Any, which: Any, clock: Any) -> int:
        return self._fill(handle, lambda n: setattr(clock._obj, "value", 1000 + 10 * n))

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, temperature: Any) -> int:
        return self._fill(handle, lambda n: setattr(temperature._obj, "value", 30 + n))

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:
        return self._fill(handle, lambda n: setattr(milliwatts._obj, "value", round(1000 * watts_of(n))))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, milliwatts: Any) -> int:
        return self._fill(handle, lambda n: setattr(milliwatts._obj, "value", 400_000))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, millijoules: Any) -> int:
        return self._fill(
            handle, lambda n: setattr(millijoules._obj, "value", round(1000 * watts_of(n) * time.monotonic()))
        )

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, reasons: Any) -> int:
        """All but GPU 4 are held down by their power cap."""
        return self._fill(handle, lambda n: setattr(reasons._obj, "value", 0 if n == 4 else 0x4))


def install_nvml(library: NvmlLibrary | None, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let the real pynvml use this library; None: as if it was not loaded yet."""
    import pynvml

    patch(pynvml, "nvmlLib", library)
    patch(pynvml, "_nvmlGetFunctionPointer_cache", {})


# ----------------------------------------------------------------------------------------------------------------- CUDA


def visible_gpus() -> list[tuple[int, int | None]]:
    """GPU and MIG instance of the devices that CUDA shows: as listed, up to the first that does not exist."""
    everything = {uuid_of(gpu): (gpu, None) for gpu in range(GPUS)}
    everything |= {uuid_of(_MIG_PARENT, i): (_MIG_PARENT, i) for i in range(_MIG_INSTANCES)}
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [(gpu, None) for gpu in range(GPUS)]
    shown: list[tuple[int, int | None]] = []
    for entry in listed.split(","):
        if entry.isdigit() and int(entry) < GPUS:
            shown.append((int(entry), None))
        elif entry in everything:
            shown.append(everything[entry])
        else:
            break
    return shown


def properties(index: int) -> SimpleNamespace:
    """What torch.cuda.get_device_properties says."""
    gpu, instance = visible_gpus()[index]
    name = "NVIDIA A100-SXM4-80GB" + ("" if instance is None else " MIG 3g.40gb")
    bare = uuid_of(gpu, instance).partition("-")[2]
    return SimpleNamespace(name=name, uuid=bare, total_memory=80 << 30, major=8, minor=0)


class SimulatedCuda(Cpu):
    """Says what `Cuda` says on this host, and computes on the CPU."""

    name = "cuda"
    shared = False
    environment_for = RealCuda.environment_for
    _one = RealCuda._one

    def count(self) -> int:
        return len(visible_gpus())

    def identity(self) -> list[DeviceInfo]:
        with mock.patch.object(torch.cuda, "get_device_properties", properties):
            return RealCuda.identity(self)  # type: ignore[arg-type]

    def own_device(self, local_rank: int) -> DeviceInfo:
        return self.identity()[local_rank % self.count()]

    def answer(self, precision: str, mode: str) -> Answer:
        return Cpu().answer(precision, mode)


def install_cuda(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make SimulatedCuda the device `cuda` of this process."""
    patch(cuda_module, "Cuda", SimulatedCuda)
    patch(devices, "_has_device_node", lambda: True)
    patch(devices, "_discover", functools.cache(devices._discover.__wrapped__))


def environment(folder: Path, **library: Any) -> dict[str, str]:
    """Variables with which a command, and all processes it starts, run on such a host."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from tests.lab.telemetry import nvidia_host\n\nnvidia_host.install_from_environment()\n"
    )
    root = Path(__file__).parents[3]
    path = [str(folder), str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), _HOST_VARIABLE: json.dumps(library)}


def install_from_environment() -> None:
    install_nvml(NvmlLibrary(**json.loads(os.environ[_HOST_VARIABLE])))
    install_cuda()
