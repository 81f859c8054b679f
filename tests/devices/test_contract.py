"""Every device keeps the contract. What is not here is driven against fakes, and the tests' names say so."""

import contextlib
from collections.abc import Iterator

import pytest
import torch

from tests.devices.fake_vendors import (
    RecordedCallFake,
    fake_gpu_library,
    fake_habana_frameworks,
    fake_metal_library,
)
from vernier.devices import KINDS, matrix, resolve, usable
from vernier.devices import cpu as cpu_module
from vernier.devices.base import MODES, PRECISIONS, Device
from vernier.devices.cpu import Cpu
from vernier.devices.cuda import Cuda
from vernier.devices.hpu import Hpu
from vernier.devices.mps import Mps
from vernier.devices.xpu import Xpu
from vernier.errors import ConfigError


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> RecordedCallFake:
    library = fake_gpu_library()
    monkeypatch.setattr(torch, "cuda", library)
    return library


@pytest.fixture
def fake_xpu(monkeypatch: pytest.MonkeyPatch) -> RecordedCallFake:
    library = fake_gpu_library()
    monkeypatch.setattr(torch, "xpu", library)
    return library


@pytest.fixture
def fake_mps(monkeypatch: pytest.MonkeyPatch) -> RecordedCallFake:
    library = fake_metal_library()
    monkeypatch.setattr(torch, "mps", library)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    return library


@pytest.fixture
def fake_hpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedCallFake]:
    monkeypatch.delenv("PT_HPU_LAZY_MODE", raising=False)
    with fake_habana_frameworks() as library:
        yield library


@pytest.fixture(autouse=True)
def _torch_settings_put_back() -> Iterator[None]:
    precision, conv = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = precision, conv
    torch.backends.cudnn.benchmark = benchmark


def _keeps_contract(device: Device, count: int) -> None:
    assert type(device).available()
    assert device.count() == count
    rows = device.identity()
    assert [row.index for row in rows] == list(range(count))
    assert all(row.name for row in rows)
    assert device.torch_device(0).type == device.name
    device.synchronize()
    device.mark_step()
    device.reset_peak_memory()
    memory = device.memory()
    assert memory is not None
    assert 0 < memory.allocated_bytes <= memory.peak_bytes
    for precision in PRECISIONS:
        for mode in MODES:
            answer = device.answer(precision, mode)
            assert (answer.verdict == "yes") == (not answer.why)
            assert bool(answer.why) == bool(answer.instead)


def test_cpu_keeps_the_contract() -> None:
    _keeps_contract(Cpu(), 1)


def test_cuda_keeps_the_contract_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    _keeps_contract(Cuda(), 2)
    assert "synchronize" in fake_cuda.called()
    assert Cuda().identity()[1].uuid == "GPU-0000-fake"
    assert Cuda().torch_device(3) == torch.device("cuda", 1)


def test_xpu_keeps_the_contract_against_a_fake(fake_xpu: RecordedCallFake) -> None:
    _keeps_contract(Xpu(), 2)
    assert "synchronize" in fake_xpu.called()


def test_mps_keeps_the_contract_against_a_fake(fake_mps: RecordedCallFake) -> None:
    _keeps_contract(Mps(), 1)
    assert "synchronize" in fake_mps.called()


def test_hpu_keeps_the_contract_against_a_fake(fake_hpu: RecordedCallFake) -> None:
    _keeps_contract(Hpu(), 8)
    assert "synchronize" in fake_hpu.called()


def test_cuda_computes_in_tf32_only_when_asked_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    Cuda().prepare("tf32", local_rank=1)
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cudnn.conv.fp32_precision == "tf32"
    assert torch.backends.cudnn.benchmark
    assert ("set_device", (torch.device("cuda", 1),)) in fake_cuda.calls
    Cuda().prepare("fp32")
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


def test_cuda_deterministic_gives_up_autotuning_against_a_fake(
    fake_cuda: RecordedCallFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    Cuda().prepare(deterministic=True)
    assert not torch.backends.cudnn.benchmark
    assert torch.are_deterministic_algorithms_enabled()


def test_cuda_copies_on_a_stream_of_its_own_against_a_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    side, main = RecordedCallFake(), RecordedCallFake()
    library = RecordedCallFake(Stream=side, stream=lambda _: contextlib.nullcontext(), current_stream=main)
    monkeypatch.setattr(torch, "cuda", library)
    tensor = RecordedCallFake()
    tensor._answers["to"] = tensor
    device, place = Cuda(), torch.device("cuda", 0)
    assert device.upload(tensor, place) is tensor  # type: ignore[arg-type, comparison-overlap]
    device.uploads_done()
    assert tensor.calls == [("to", (place,)), ("record_stream", (main,))]
    assert main.calls == [("wait_stream", (side,))]
    assert side.called() == ["synchronize"]


def test_an_old_gpu_refuses_bf16_and_names_fp16_against_a_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", fake_gpu_library(capability=(7, 0)))
    why = Cuda().refuse("bf16", "eager", allow_slow=True)
    assert "7.0" in why
    assert "--precision fp16" in why


def test_gaudi_marks_steps_in_lazy_mode_only_against_a_fake(
    fake_hpu: RecordedCallFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hpu().mark_step()
    assert "mark_step" not in fake_hpu.called()
    net = torch.nn.Linear(1, 1)
    assert Hpu().for_inference(net) is net
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    Hpu().mark_step()
    assert "mark_step" in fake_hpu.called()
    assert Hpu().for_inference(net) is not net
    assert Hpu().answer("bf16", "compile").verdict == "refused"


def test_gaudi_prepares_its_own_card_against_a_fake(fake_hpu: RecordedCallFake) -> None:
    Hpu().prepare("bf16", local_rank=9)
    assert ("set_device", (1,)) in fake_hpu.calls


def test_bf16_on_a_cpu_without_hardware_wants_allow_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_module, "instruction_sets", lambda: frozenset({"avx2"}))
    assert Cpu().answer("bf16", "eager").verdict == "slow"
    assert "--allow-slow" in Cpu().refuse("bf16", "eager", allow_slow=False)
    assert Cpu().refuse("bf16", "eager", allow_slow=True) == ""
    monkeypatch.setattr(cpu_module, "instruction_sets", lambda: frozenset({"avx512_bf16"}))
    assert Cpu().answer("bf16", "eager").verdict == "yes"


def test_compile_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    why = Cpu().refuse("fp32", "compile", allow_slow=True)
    assert "C++ compiler" in why
    assert "--mode eager" in why


def test_autocast_of_the_cpu_computes_in_the_precision_and_keeps_weights() -> None:
    layer = torch.nn.Linear(4, 4)
    with Cpu().autocast("bf16"):
        assert layer(torch.ones(1, 4)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32
    with Cpu().autocast("fp32"):
        assert layer(torch.ones(1, 4)).dtype == torch.float32


def test_the_matrix_covers_every_combination_once() -> None:
    rows = matrix()
    assert len({(r["device"], r["precision"], r["mode"]) for r in rows}) == len(rows) == 5 * 4 * 3


def test_auto_takes_an_accelerator_before_the_cpu_against_a_fake(fake_mps: RecordedCallFake) -> None:
    assert resolve("auto").name == "mps"
    assert [d.name for d in usable()] == ["mps", "cpu"]


def test_a_device_that_is_not_here_is_named_with_those_that_are() -> None:
    absent = next(name for name, kind in KINDS.items() if not kind.available())
    with pytest.raises(ConfigError, match=r"Usable: .*cpu"):
        resolve(absent)
