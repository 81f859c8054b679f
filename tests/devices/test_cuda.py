"""CUDA devices, against fakes."""

import contextlib

import pytest
import torch

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake, fake_gpu_library
from vernier.devices.cuda import Cuda


def test_cuda_keeps_the_contract_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    check_contract(Cuda(), 2)
    assert "synchronize" in fake_cuda.called()
    assert Cuda().identity()[1].uuid == "GPU-0000-fake"
    assert Cuda().torch_device(3) == torch.device("cuda", 1)


def test_cuda_computes_in_tf32_only_when_asked_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    Cuda().prepare("tf32", local_rank=1)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark
    assert ("set_device", (1,)) in fake_cuda.calls
    Cuda().prepare("fp32")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


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
