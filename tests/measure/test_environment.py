import json
import os

import pytest

from vernier.measure.environment import collect_environment, installed_version
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo, decode_environment
from vernier.version import describe_version, source_commit

CHANGE_RESULTS = (
    *("NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "UCX_TLS", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "MIOPEN_FIND_MODE", "PYTORCH_MIOPEN_SUGGEST_NHWC", "HSA_OVERRIDE_GFX_VERSION"),
    *("PT_HPU_LAZY_MODE", "PT_HPU_ENABLE_LAZY_COLLECTIVES", "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"),
    *("ZE_AFFINITY_MASK", "PJRT_DEVICE", "XLA_FLAGS", "PYTORCH_ENABLE_MPS_FALLBACK", "HCCL_SOCKET_IFNAME"),
)


def test_variables_that_change_speed_are_recorded_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("API_TOKEN", "secret")
    for name in CHANGE_RESULTS:
        monkeypatch.setenv(name, "1")
    variables = collect_environment([], "cpu", threads=2).variables
    assert (variables["OMP_NUM_THREADS"], variables["NCCL_SOCKET_IFNAME"]) == ("3", "eth0")
    assert "API_TOKEN" not in variables
    assert set(CHANGE_RESULTS) <= set(variables)


def test_an_environment_is_the_same_after_writing_and_reading() -> None:
    card = DeviceInfo(index=0, name="Card", uuid="GPU-1", memory_bytes=2**34, capability="8.0")
    collected = collect_environment([card], "cuda", threads=2)
    assert collected.cpu.cores_logical == os.cpu_count()
    assert collected.versions["torch"]
    assert decode_environment(json.loads(json.dumps(encode(collected)))) == collected


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-package-anywhere") is None


def test_a_development_version_is_recorded_with_its_commit() -> None:
    collected = collect_environment([], "cpu", threads=2)
    assert collected.versions["vernier"] == describe_version()
    assert collected.git_commit == source_commit()
