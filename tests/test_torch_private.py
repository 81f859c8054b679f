"""One test per private name of PyTorch: what a new release must still do."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

from vernier import torch_private

MODES = ["bilinear", "bicubic"]


def _image(height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8, generator=generator)
    return pixels.permute(0, 3, 1, 2)


@pytest.mark.parametrize("mode", MODES)
def test_resize_antialiased_is_interpolate_with_an_output(mode: str) -> None:
    image = _image(37, 53)
    out = torch.empty((1, 16, 24, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    torch_private.resize_antialiased(image, mode, out)
    assert torch.equal(out, F.interpolate(image, size=(16, 24), mode=mode, antialias=True))


@pytest.mark.parametrize("mode", MODES)
def test_resize_each_antialiased_resizes_and_flips_every_image_on_its_own(mode: str) -> None:
    images = [_image(37, 53, 1), _image(16, 16, 2), _image(9, 12, 3), _image(40, 8, 4)]
    flipped = [True, True, True, False]
    out = torch.empty((len(images), 16, 16, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    torch_private.resize_each_antialiased(images, flipped, mode, out)
    for row, image, flip in zip(out, images, flipped, strict=True):
        same_size = image.shape[2:] == (16, 16)
        expected = image if same_size else F.interpolate(image, size=(16, 16), mode=mode, antialias=True)
        assert (row.int() - (expected.flip(3) if flip else expected)[0].int()).abs().max() <= 1


def test_overflows_and_the_scale_are_those_of_the_step_without_reading_them() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for gradient, expected in ((1.0, 0.0), (float("inf"), 1.0)):
        scaler.scale(weight.sum())
        weight.grad = torch.full((2,), gradient)
        scaler.step(optimizer)
        assert torch_private.overflows(scaler, optimizer).item() == expected
        scaler.update()
    assert torch_private.scale_on_device(scaler).item() == scaler.get_scale() == 4.0


def test_a_plain_optimizer_computes_the_same_without_importing_the_compiler() -> None:
    script = """
import sys
import torch
from vernier.optim.build import _Updates
from vernier.optim.kinds.lars import Lars
from vernier.torch_private import plain

def train(cls, **settings):
    torch.manual_seed(0)
    model, out = torch.nn.Linear(4, 3), []
    optimizer = cls([{"params": [p]} for p in model.parameters()], lr=0.1, **settings)
    for _ in range(3):
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(model.weight.detach().clone())
    return out

kinds = [(torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "fused": True}), (torch.optim.AdamW, {"fused": True})]
kinds += [(cls, {}) for cls, _ in kinds]
plain_results = [train(plain(cls), **settings) for cls, settings in kinds]
group = {"params": [torch.nn.Parameter(torch.ones(2))], "weight_decay": 0.1, "lr_share": 1.0}
ours = _Updates([group], 0.1, Lars())
group["params"][0].grad = torch.ones(2)
ours.step()
ours.zero_grad()
assert "torch._dynamo" not in sys.modules
for result, (cls, settings) in zip(plain_results, kinds, strict=True):
    assert all(map(torch.equal, result, train(cls, **settings)))
assert "torch._dynamo" in sys.modules  # otherwise `plain` is of no use any more
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_foreach_operations_are_those_of_single_tensors() -> None:
    tensors, others = [torch.arange(3.0), torch.ones(2, 2)], [torch.full((3,), 2.0), torch.eye(2)]
    for fast, slow in [
        (
            torch_private.foreach_add(tensors, others, alpha=3),
            [a + 3 * b for a, b in zip(tensors, others, strict=True)],
        ),
        (torch_private.foreach_mul(tensors, 0.5), [a * 0.5 for a in tensors]),
        (torch_private.foreach_norm(tensors), [a.norm() for a in tensors]),
    ]:
        assert all(map(torch.equal, fast, slow))


def test_foreach_operations_with_an_underscore_work_in_place() -> None:
    tensors, others = [torch.arange(3.0)], [torch.full((3,), 2.0)]
    torch_private.foreach_add_(tensors, others)
    torch_private.foreach_mul_(tensors, 2.0)
    torch_private.foreach_sub_(tensors, others)
    assert tensors[0].tolist() == [2.0, 4.0, 6.0]
    torch_private.foreach_lerp_(tensors, others, 0.5)
    assert tensors[0].tolist() == [2.0, 3.0, 4.0]
    torch_private.foreach_copy_(tensors, others)
    assert tensors[0].tolist() == [2.0, 2.0, 2.0]


def test_compiler_counters_count_a_new_graph_and_its_seconds() -> None:
    before = torch_private.compiler_counters()
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    compiled(torch.ones(3))
    after = torch_private.compiler_counters()
    assert after[0] == before[0] + 1
    assert after[1] > before[1]


def test_patch_inductor_changes_a_setting_while_entered() -> None:
    from torch._inductor import config

    before = config.freezing
    with torch_private.patch_inductor(freezing=not before):
        assert config.freezing is not before
    assert config.freezing is before


def test_a_failure_of_the_compilers_backend_is_recognised() -> None:
    def broken(*_: object) -> None:
        raise ValueError("no compiler here")

    with pytest.raises(Exception, match="no compiler here") as failure:
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(3))  # type: ignore[arg-type]
    assert torch_private.is_compiler_failure(failure.value)
    assert not torch_private.is_compiler_failure(ValueError("another"))


@pytest.fixture
def group_of_one(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


class OldDataParallel(nn.parallel.DistributedDataParallel):
    """The signature of PyTorch 2.9."""

    def __init__(self, module: nn.Module, broadcast_buffers: bool = True, bucket_cap_mb: float | None = None) -> None:
        super().__init__(module, broadcast_buffers=broadcast_buffers, bucket_cap_mb=bucket_cap_mb)


@pytest.mark.filterwarnings("ignore:.*broadcast_buffers")
@pytest.mark.parametrize("release", ["installed", "2.9"])
@pytest.mark.usefixtures("group_of_one")
def test_data_parallel_copies_buffers_once_and_never_during_forward(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    copied: list[torch.Tensor] = []
    if release == "2.9":
        monkeypatch.setattr(nn.parallel, "DistributedDataParallel", OldDataParallel)
        monkeypatch.setattr(distributed, "broadcast", lambda tensor, source: copied.append(tensor))
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapped = torch_private.data_parallel(network, bucket_cap_mb=1)
    assert not wrapped.will_sync_module_buffers()
    assert [b.shape for b in copied] == ([b.shape for b in network.buffers()] if release == "2.9" else [])
    wrapped(torch.randn(3, 2)).sum().backward()
    assert network[0].weight.grad is not None


@dataclass
class OldLaunchConfig:
    """The fields of PyTorch 2.9 that matter here."""

    nproc_per_node: int


@pytest.mark.parametrize("release", ["installed", "2.9"])
def test_the_launcher_leaves_signals_alone_and_waits(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.launcher import api as launcher

    if release == "2.9":
        monkeypatch.setattr(launcher, "LaunchConfig", OldLaunchConfig)
    old = not hasattr(launcher.LaunchConfig, "signals_to_handle")
    terminate, close = api._terminate_process_handler, api.PContext.close
    forwarded: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: forwarded.append(number))
    waits: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        api.PContext, "close", lambda self, death_sig=None, timeout=30: waits.append((death_sig, timeout))
    )
    try:
        settings: dict[str, Any] = {} if release == "2.9" else {"min_nodes": 1, "max_nodes": 1}
        with torch_private.launch_config({signal.SIGTERM, signal.SIGUSR1}, 120, nproc_per_node=2, **settings) as config:
            assert config.nproc_per_node == 2
            if old:
                api._terminate_process_handler(signal.SIGTERM, None)
                assert forwarded == [signal.SIGTERM]
                with pytest.raises(api.SignalException):
                    api._terminate_process_handler(signal.SIGHUP, None)
                api.PContext.close(object(), signal.SIGTERM)  # type: ignore[arg-type]
                assert waits == [(signal.SIGTERM, 120)]
            else:
                assert config.signals_to_handle == "SIGINT,SIGHUP,SIGQUIT"
                assert config.shutdown_timeout == 120
    finally:
        signal.signal(signal.SIGTERM, before)
        monkeypatch.undo()
    assert api._terminate_process_handler is terminate
    assert api.PContext.close is close


@pytest.mark.parametrize("allowed", [False, True])
def test_tf32_is_switched_for_products_convolutions_and_recurrent_layers_together(allowed: bool) -> None:
    backends: Any = torch.backends
    before = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
    try:
        torch_private.allow_tf32(allowed)
        # Each of these raises where old and new state disagree.
        assert backends.cuda.matmul.allow_tf32 is backends.cudnn.allow_tf32 is allowed
        assert torch.get_float32_matmul_precision() == ("high" if allowed else "highest")
        if hasattr(backends.cudnn, "conv"):
            parts = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
            assert [p.fp32_precision == "tf32" for p in parts] == [allowed] * 3
    finally:
        backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("release", ["newer", "older"])
@pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor.*:FutureWarning")
def test_all_gather_flat_fills_the_output_in_any_release(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    if release == "older":
        monkeypatch.delattr(distributed, "all_gather_single", raising=False)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        output = torch.zeros(3)
        torch_private.all_gather_flat(output, torch.tensor([1.0, 2.0, 3.0])).wait()
    finally:
        distributed.destroy_process_group()
    assert output.tolist() == [1.0, 2.0, 3.0]
