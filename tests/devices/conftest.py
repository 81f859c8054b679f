"""Vendors' libraries replaced by specs of the real ones, and PyTorch's settings put back after each test."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.devices.vendor_specs import cuda_spec, habana_installed, mps_spec, xpu_spec


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.cuda as on a host with two A100."""
    monkeypatch.setattr(torch, "cuda", library := cuda_spec())
    return library


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.xpu as on a host with two GPUs."""
    monkeypatch.setattr(torch, "xpu", library := xpu_spec())
    return library


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.mps as on a Mac."""
    monkeypatch.setattr(torch, "mps", library := mps_spec())
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: True)  # PyTorch 2.8's autocast
    return library


@pytest.fixture
def hpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """habana_frameworks.torch.hpu as on a host with eight Gaudis, not in lazy mode."""
    with habana_installed(monkeypatch) as library:
        yield library


@pytest.fixture(autouse=True)
def _torch_settings_put_back() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
    torch.backends.cudnn.benchmark = benchmark
