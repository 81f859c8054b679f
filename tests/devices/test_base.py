"""What every device must do: each method of the contract is called on each device, against specs of vendors' modules.

And the check of that check: with any one vendor's name misspelt in a device class, the same calls raise.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
import torchgen
import yaml

from tests.devices.vendor_specs import contract_methods, tensor_spec
from vernier.devices import kinds
from vernier.devices.base import MODES, PRECISIONS, Device, stated_uuid
from vernier.devices.cpu import Cpu

BUILT_IN = ("cpu", "cuda", "hpu", "mps", "xpu")
COUNTS = {"cpu": 1, "cuda": 2, "hpu": 8, "mps": 1, "xpu": 2}


@pytest.fixture(params=BUILT_IN)
def device(request: pytest.FixtureRequest) -> Device:
    """Each built-in device, against its vendor's interface."""
    if request.param != "cpu":
        request.getfixturevalue(request.param)
    return kinds()[request.param]()


def _identity(device: Device) -> None:
    rows = device.identity()
    assert [row.index for row in rows] == list(range(COUNTS[device.name]))
    assert all(row.name for row in rows)


def _answers(device: Device) -> None:
    for answer in [device.answer(precision, mode) for precision in PRECISIONS for mode in MODES]:
        assert (answer.verdict == "yes") == (not answer.why) == (not answer.instead)


def _memory(device: Device) -> None:
    memory = device.memory()
    assert memory is not None
    assert 0 < memory.allocated_bytes <= memory.peak_bytes


def _free_memory(device: Device) -> None:
    free = device.free_memory(1)
    assert free is None if device.name == "cpu" else free is not None
    assert free is None or free >= 0


def _upload(device: Device) -> None:
    tensor = torch.ones(2) if device.name == "cpu" else tensor_spec()
    assert device.upload(tensor, device.torch_device(0)) is tensor


def _elapsed(device: Device) -> None:
    start, end = device.record_event(), device.record_event()
    device.synchronize()
    seconds = device.elapsed_s(start, end)
    assert seconds >= 0 if device.name == "cpu" else seconds == 1.5


def _pinned(device: Device) -> None:
    tensor = tensor_spec()
    assert device.pinned(tensor) is tensor
    assert tensor.pin_memory.called == device.pins_memory


def _inference(device: Device) -> None:
    model = torch.nn.Linear(2, 2)
    assert device.for_inference(model)(torch.ones(1, 2)).shape == (1, 2)


def _autocast(device: Device) -> None:
    for precision in PRECISIONS:
        with device.autocast(precision):
            pass


CALLS: dict[str, Callable[[Device], object]] = {
    "available": lambda device: type(device).available() or pytest.fail("not available"),
    "count": lambda device: device.count() == COUNTS[device.name] or pytest.fail(str(device.count())),
    "torch_device": lambda device: device.torch_device(1).type == device.name or pytest.fail("another type"),
    "identity": _identity,
    "own_device": lambda device: device.own_device(1).name or pytest.fail("no name"),
    "environment_for": lambda device: device.environment_for(device.identity()[0]),
    "answer": _answers,
    "deterministic": lambda device: device.deterministic().verdict,
    "refuse": lambda device: device.refuse("bf16", "eager", allow_slow=True),
    "prepare_collectives": lambda device: device.prepare_collectives(rank=1, local_rank=1, world=2),
    "prepare": lambda device: device.prepare("fp32", deterministic=True, local_rank=1),
    "without_gradients": lambda device: device.without_gradients().__enter__(),
    "autocast": _autocast,
    "pinned": _pinned,
    "upload": _upload,
    "copied_event": lambda device: device.wait_for(device.copied_event()),
    "is_done": lambda device: device.is_done(device.record_event()),
    "fuses_optimizer": lambda device: device.fuses_optimizer("fp32"),
    "synchronize": lambda device: device.synchronize(),
    "record_event": lambda device: device.record_event(),
    "wait_for": lambda device: device.wait_for(device.record_event()),
    "elapsed_s": _elapsed,
    "is_lost": lambda device: device.is_lost(RuntimeError("an error of the network")) and pytest.fail("lost"),
    "end_step": lambda device: device.end_step(),
    "optimizer_step": lambda device: device.optimizer_step(torch.optim.SGD([torch.zeros(1, requires_grad=True)])),
    "compilations": lambda device: device.compilations().graphs >= 0 or pytest.fail("fewer than none"),
    "numa_node": lambda device: device.numa_node(1),
    "sensors": lambda device: device.sensors(["a uuid"]),
    "memory": _memory,
    "reset_peak_memory": lambda device: device.reset_peak_memory(),
    "free_memory": _free_memory,
    "return_freed_memory": lambda device: device.return_freed_memory(),
    "for_inference": _inference,
}
"""One call of every method of the contract, in the order in which the engine would make them."""


def test_every_method_of_the_contract_is_called_here() -> None:
    assert set(CALLS) == contract_methods()


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_every_method_of_every_device_calls_what_its_vendor_has(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    _call_everything(device)


VENDOR_OBJECTS = (
    *("torch.cuda", "torch.xpu", "torch.mps", "torch.backends.mps", "self.library()", "cls.library()", "_core()"),
    *("hccl", "event", "start", "properties", "self._copies", "torch.cuda.current_stream(target)", "moved", "tensor"),
)
"""What vendors' functions are called on, as the device classes write it."""


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "cpu"])
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_no_vendor_name_can_be_misspelt_unnoticed(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue(name)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    unnoticed, mutants = [], 0
    for owner, attribute, misspelt, what in _misspelt(kinds()[name]):
        mutants += 1
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, misspelt)
            if not _raises_attribute_error(kinds()[name]):
                unnoticed.append(what)
    assert unnoticed == []
    assert mutants >= 5


def _raises_attribute_error(kind: type[Device]) -> bool:
    for hip in (None, "6.4"):  # ROCm's build of PyTorch is the same device
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.version, "hip", hip)
            if hip is not None:
                patch.delenv("PT_HPU_LAZY_MODE")  # Gaudi's package is asked
            try:
                _call_everything(kind())
            except AttributeError:
                return True
    return False


def _call_everything(device: Device) -> None:
    for call in CALLS.values():
        with torch.enable_grad():
            call(device)


def _misspelt(kind: type[Device]) -> Iterator[tuple[Any, str, Any, str]]:
    """Each function of the device's class and module, with one vendor's name misspelt."""
    owners: list[Any] = [base for base in kind.__mro__ if base not in (object, Device)] + [sys.modules[kind.__module__]]
    for owner in owners:
        for attribute, member in list(vars(owner).items()):
            function = getattr(member, "__func__", member)
            own = isinstance(function, FunctionType) and function.__module__.startswith(
                ("vernier.devices", "vernier.compat.devices")
            )
            if own and not _replaced(kind, owner, attribute):
                source = ast.parse(textwrap.dedent(inspect.getsource(function)))
                for at in range(sum(_is_vendor_name(node) for node in ast.walk(source))):
                    yield owner, attribute, *_rewritten(function, at, owner)


def _replaced(kind: type[Device], owner: Any, attribute: str) -> bool:
    """Whether the device has a method of its own instead, which does not call this one."""
    used = inspect.getattr_static(kind, attribute, None)
    return isinstance(owner, type) and used is not vars(owner)[attribute] and "super()" not in inspect.getsource(used)


def _is_vendor_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) in VENDOR_OBJECTS


def _rewritten(function: FunctionType, at: int, owner: Any) -> tuple[Any, str]:
    source = ast.parse(textwrap.dedent(inspect.getsource(function)))
    node = [node for node in ast.walk(source) if _is_vendor_name(node)][at]
    assert isinstance(node, ast.Attribute)
    node.attr += "_misspelt"
    factory = "def build(__class__):\n" + textwrap.indent(ast.unparse(source), "    ")
    scope: dict[str, Any] = {}
    exec(f"{factory}\n    return {function.__name__}", function.__globals__, scope)
    return scope["build"](owner), f"{function.__qualname__}: {ast.unparse(node)}"


def test_autocast_of_the_cpu_computes_in_the_precision_and_keeps_weights() -> None:
    layer = torch.nn.Linear(4, 4)
    with Cpu().autocast("bf16"):
        assert layer(torch.ones(1, 4)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32
    with Cpu().autocast("fp32"):
        assert layer(torch.ones(1, 4)).dtype == torch.float32


@pytest.mark.parametrize("uuid", [None, "None", "", "N/A", "00000000-0000-0000-0000-000000000000"])
def test_a_device_without_a_uuid_has_none(uuid: object) -> None:
    assert stated_uuid(uuid) is None
    assert stated_uuid("GPU-1b5e") == "GPU-1b5e"


def _kernels(function: str) -> set[str]:
    """The devices that have a kernel of this function, in PyTorch's own list of functions (CPU, CUDA, MPS)."""
    listed = yaml.safe_load((Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text())
    (entry,) = [entry for entry in listed if entry["func"].startswith(f"{function}(")]
    return {key.strip().lower() for keys in entry["dispatch"] for key in keys.split(",")}


def test_fused_updates_are_claimed_only_where_pytorch_has_them() -> None:
    """XPU's kernels are in intel/torch-xpu-ops. Gaudi has none, though PyTorch would ask for them."""
    fused = {name for name, kind in kinds().items() if kind.fused_optimizer} & set(BUILT_IN)
    assert fused == {"cpu", "cuda", "mps", "xpu"}
    assert fused <= set(torch.utils._foreach_utils._get_fused_kernels_supported_devices())
    for function in ("_fused_sgd_", "_fused_adamw_"):
        assert fused - {"xpu"} == _kernels(function)


def test_synchronised_batch_norm_is_pytorchs_own_only_where_it_runs() -> None:
    """Gaudi's kernels are those of lazy mode; PyTorch's module admits hpu nevertheless."""
    native = {name for name, kind in kinds().items() if kind.native_sync_bn} & set(BUILT_IN)
    assert native == {"cuda", "xpu"}
    source = inspect.getsource(torch.nn.SyncBatchNorm.forward)
    assert all(f'"{name}"' in source for name in native)
    assert not any(f'"{name}"' in source for name in ("cpu", "mps"))
    assert _kernels("batch_norm_stats") == {"cuda"}


def test_only_gaudi_compiles_for_every_shape() -> None:
    assert [name for name, kind in kinds().items() if name in BUILT_IN and kind.static_shapes] == ["hpu"]


def test_memory_is_page_locked_where_the_device_copies_without_waiting() -> None:
    """PyTorch pins memory for any accelerator; Metal shares the host's memory, and a CPU has nothing to copy."""
    assert {name for name, kind in kinds().items() if name in BUILT_IN and kind.pins_memory} == {"cuda", "hpu", "xpu"}
