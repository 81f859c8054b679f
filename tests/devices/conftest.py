"""Fakes in place of vendors' libraries, and PyTorch's settings put back after each test."""

from collections.abc import Iterator

import pytest
import torch

from tests.devices.fake_vendors import (
    RecordedCallFake,
    fake_gpu_library,
    fake_habana_frameworks,
    fake_metal_library,
)


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
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions
    torch.backends.cudnn.benchmark = benchmark
