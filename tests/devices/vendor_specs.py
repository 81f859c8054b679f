"""Stand-ins for vendors' libraries, made from the real modules: a name or an argument they do not have raises.

torch.cuda, torch.xpu and torch.mps are complete Python modules in the CPU build of PyTorch, so every call of a device
class is checked against them. What a call does on hardware is not checked: that needs the device. Gaudi's package is
on no public index; its interface is written down in `habana_stubs`.
"""

import ast
import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
import torch

from vernier.devices.base import Device

HABANA_STUBS = Path(__file__).parent / "habana_stubs"
UUID = "1b5e4a3c-0000-4f6d-9a7b-000000000001"


def spec_of(module: ModuleType, *classes: str, **answers: Any) -> Any:
    """An autospec of a module. A function returns its answer or None: a mere mock would answer any name again.

    `classes` check the arguments of `__new__`, which `create_autospec` does not.
    """
    spec = create_autospec(module, spec_set=True)
    for name, member in vars(module).items():
        if isinstance(member, FunctionType):
            getattr(spec, name).return_value = None
    for name in classes:
        real = getattr(module, name)
        getattr(spec, name).side_effect = _constructor(real, getattr(spec, name).return_value)
    for name, answer in answers.items():
        getattr(spec, name).return_value = answer
    return spec


def _constructor(real: type, instance: Any) -> Any:
    signature = inspect.signature(real.__new__ if "__new__" in vars(real) else real.__init__)  # type: ignore[misc]

    def construct(*arguments: Any, **named: Any) -> Any:
        signature.bind(None, *arguments, **named)
        return instance

    return construct


def properties_of(vendor: str, **values: Any) -> Any:
    """A vendor's device properties, with no attribute that PyTorch's own list of them lacks."""
    unknown = set(values) - property_names(vendor) - PCI_PROPERTIES
    assert not unknown, f"the properties of {vendor} devices have no {unknown}"
    return SimpleNamespace(**values)


PCI_PROPERTIES = {"pci_domain_id", "pci_bus_id", "pci_device_id"}
"""CUDA's properties have them (dir(torch._C._CudaDeviceProperties) of the CUDA build 2.9.0), its stub file does not."""


@cache
def property_names(vendor: str) -> set[str]:
    """The attributes of a vendor's device properties, from PyTorch's stub file `_C/__init__.pyi`."""
    stubs = ast.parse((Path(torch.__file__).parent / "_C/__init__.pyi").read_text())
    name = f"_{vendor}DeviceProperties"
    listed = next(node for node in stubs.body if isinstance(node, ast.ClassDef) and node.name == name)
    return {str(field.target.id) for field in listed.body if isinstance(field, ast.AnnAssign)}  # type: ignore[union-attr]


def cuda_spec(capability: tuple[int, int] = (8, 0), count: int = 2, name: str = "NVIDIA A100", uuid: str = UUID) -> Any:
    spec = spec_of(
        torch.cuda,
        "Event",
        "Stream",
        is_available=True,
        device_count=count,
        get_device_capability=capability,
        memory_allocated=10,
        max_memory_allocated=30,
        memory_reserved=40,
        mem_get_info=(70, 80),
        get_device_properties=properties_of(
            "Cuda",
            name=name,
            uuid=uuid,
            total_memory=80 << 30,
            major=8,
            minor=0,
            gcnArchName="gfx90a",
            pci_domain_id=0,
            pci_bus_id=0xB7,
            pci_device_id=0,
        ),
    )
    spec.stream.return_value = contextlib.nullcontext()
    spec.current_stream.return_value = create_autospec(torch.cuda.Stream, instance=True, spec_set=True)
    spec.Event.return_value.elapsed_time.return_value = 1500.0
    return spec


def xpu_spec(uuid: object = UUID) -> Any:
    stated = {"uuid": uuid} if "uuid" in property_names("Xpu") else {}  # not before PyTorch 2.9
    spec = spec_of(
        torch.xpu,
        "Event",
        "Stream",
        is_available=True,
        device_count=2,
        memory_allocated=10,
        max_memory_allocated=30,
        memory_reserved=40,
        mem_get_info=(70, 80),
        get_device_properties=properties_of("Xpu", name="Intel Max 1550", total_memory=64 << 30, **stated),
    )
    spec.Event.return_value.elapsed_time.return_value = 1500.0
    return spec


def mps_spec() -> Any:
    spec = spec_of(
        torch.mps, "Event", recommended_max_memory=100, current_allocated_memory=10, driver_allocated_memory=30
    )
    spec.Event.return_value.elapsed_time.return_value = 1500.0
    return spec


def tensor_spec() -> Any:
    """A tensor whose methods are those of torch.Tensor; what they return is the same one."""
    tensor = create_autospec(torch.Tensor, instance=True, spec_set=True)
    for name in ("to", "pin_memory", "clone"):
        getattr(tensor, name).return_value = tensor
    return tensor


@contextlib.contextmanager
def habana_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gaudi's package can be imported; gives its module `hpu`, and puts everything back."""
    before = dict(os.environ)
    monkeypatch.syspath_prepend(str(HABANA_STUBS))
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    try:
        yield importlib.import_module("habana_frameworks.torch.hpu")
    finally:
        os.environ.clear()
        os.environ.update(before)
        for name in [name for name in sys.modules if name.split(".")[0] == "habana_frameworks"]:
            del sys.modules[name]


def hl_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    """A program `hl-smi` that answers `-Q module_id,uuid,name,memory.total -f csv,noheader` and refuses all else."""
    program = folder / "hl-smi"
    columns = "module_id,uuid,name,memory.total"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "-Q {columns} -f csv,noheader" ] || {{ echo "unknown: $*" >&2; exit 1; }}\n'
        f"cat <<'END'\n{rows}END\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def contract_methods() -> set[str]:
    """Every public method of the contract."""
    return {name for name, member in inspect.getmembers(Device, callable) if not name.startswith("_")}


def called(spec: Any) -> list[str]:
    """Names of the functions of a stand-in that were called, in order."""
    mock: Mock = spec
    return [name for name, _, _ in mock.mock_calls]
