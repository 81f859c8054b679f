"""Every name of PyTorch that is private, deprecated or missing in some release that Vernier works with.

Each is behind a function that says why. Nothing else in Vernier touches `torch._C`, `torch._foreach_*`,
`torch._dynamo`, `torch._inductor` or TorchScript, or asks which release it runs on. When a release of PyTorch moves one
of these names, this file and its tests are the only ones to change. `make test-torch TORCH=VERSION` tries a release.
"""

import inspect
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from functools import cache, partialmethod
from typing import Any

import torch
from torch import distributed, nn

# Operations on a list of tensors at once: one kernel launch instead of one per tensor. torch.optim uses the same ones.
foreach_add, foreach_add_, foreach_lerp_ = torch._foreach_add, torch._foreach_add_, torch._foreach_lerp_
foreach_copy_ = torch._foreach_copy_
foreach_mul, foreach_mul_ = torch._foreach_mul, torch._foreach_mul_
foreach_norm, foreach_sub_ = torch._foreach_norm, torch._foreach_sub_


def resize_antialiased(images: torch.Tensor, mode: str, out: torch.Tensor) -> None:
    """Resize [samples, channels, height, width] to the size of `out`, with antialiasing, into `out`.

    `torch.nn.functional.interpolate` calls the same kernel but takes no output: it answers in channels-first memory,
    and bringing that back costs as much as the resizing.
    """
    _RESIZE_KERNELS[mode](images, out.shape[2:], False, None, None, out=out)


_RESIZE_KERNELS: dict[str, Any] = {
    "bilinear": torch._C._nn._upsample_bilinear2d_aa,
    "bicubic": torch._C._nn._upsample_bicubic2d_aa,
}


def resize_each_antialiased(images: list[torch.Tensor], flipped: list[bool], mode: str, out: torch.Tensor) -> None:
    """Resize images [1, channels, height, width] of any size into the rows of `out`, some flipped left to right.

    TorchScript runs the whole loop without the interpreter's lock; a loop in Python takes it again for every image, and
    loader threads wait for each other. With two threads on two cores, decoded images took 7 % (224 px) to 10 % (64 px)
    longer that way (median of 15 interleaved rounds); flipping all images of a chunk at once was slower still.
    """
    with _COMPILING:
        loop = _resize_loop()
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]  # sizes differ each time
        loop.resize_each(images, flipped, mode == "bicubic", out)


_COMPILING = threading.Lock()


@cache
def _resize_loop() -> Any:
    """Compiled on first use, not at import."""
    return torch.jit.CompilationUnit(
        """
def resize_each(images: List[Tensor], flipped: List[bool], bicubic: bool, out: Tensor) -> None:
    height, width = out.size(2), out.size(3)
    for i in range(len(images)):
        image, row = images[i], out[i : i + 1]
        same = image.size(2) == height and image.size(3) == width
        flip_first = flipped[i] and not same and image.numel() <= row.numel()
        if flip_first:
            image = image.flip(3)
        if same:
            row.copy_(image)
        elif bicubic:
            torch._C._nn._upsample_bicubic2d_aa(image, [height, width], False, None, None, out=row)
        else:
            torch._C._nn._upsample_bilinear2d_aa(image, [height, width], False, None, None, out=row)
        if flipped[i] and not flip_first:
            row.copy_(row.flip(3))
"""
    )


def overflows(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """1 on the device where a gradient of this step overflowed, otherwise 0; between `step` and `update`.

    The public way compares the scale before and after, and each reading of it waits for the device.
    """
    (overflowed,) = scaler._found_inf_per_device(optimizer).values()
    return torch.as_tensor(overflowed)


def scale_on_device(scaler: torch.amp.GradScaler) -> torch.Tensor:
    """The scale of the loss as a tensor on the device, after the first `scale`; `get_scale` waits for the device."""
    assert scaler._scale is not None
    return scaler._scale


def plain(cls: Any) -> Any:
    """An optimizer, PyTorch's or ours, without the part of torch.compile: three methods import torch._dynamo.

    Every run would wait for that, compiled or not: `vernier train shapes-quick --max-steps 5` takes 2.92 s instead of
    1.96 s (medians of 7 interleaved runs, two cores of an AMD EPYC, PyTorch 2.13, 2026-11-18).
    """
    methods = {name: inspect.unwrap(getattr(cls, name)) for name in ("step", "add_param_group", "zero_grad")}
    return type(cls.__name__, (cls,), {**methods, "step": torch.no_grad()(methods["step"])})


def compiler_counters() -> tuple[int, float]:
    """The graphs that torch.compile has made in this process, and its seconds in forward and backward compilation.

    There is no public count of compilations or of their time.
    """
    if "torch._dynamo" not in sys.modules:  # importing it takes longer than many a run
        return 0, 0.0
    from torch._dynamo import utils

    times = utils.compilation_time_metrics
    seconds = sum(sum(times.get(name, ())) for name in ("_compile.compile_inner", "backward._backward_impl"))
    return int(utils.counters["stats"]["unique_graphs"]), float(seconds)


def patch_inductor(**settings: Any) -> AbstractContextManager[Any]:
    """Change settings of the inductor backend while entered; `torch.compile`'s options do not reach all of them."""
    from torch._inductor import config

    patched: AbstractContextManager[Any] = config.patch(**settings)
    return patched


def is_compiler_failure(error: Exception) -> bool:
    """Whether torch.compile's backend failed; the exception has no public name."""
    return isinstance(error, torch._dynamo.exc.BackendCompilerFailed)


def data_parallel(network: nn.Module, **settings: Any) -> nn.parallel.DistributedDataParallel:
    """DistributedDataParallel that copies the buffers of rank 0 when it is made, and never during forward.

    PyTorch 2.8 and 2.9 lack `forward_sync_buffers`; `broadcast_buffers`, since deprecated, switches off both.
    """
    wrapper = nn.parallel.DistributedDataParallel
    if "forward_sync_buffers" in inspect.signature(wrapper).parameters:
        return wrapper(network, forward_sync_buffers=False, **settings)
    wrapped = wrapper(network, broadcast_buffers=False, **settings)
    for buffer in network.buffers():
        distributed.broadcast(buffer, 0)
    return wrapped


def all_gather_flat(output: torch.Tensor, own: torch.Tensor) -> Any:
    """Begin to fill `output` with the `own` of every rank, one after the other; what to wait for.

    PyTorch 2.13 deprecates the older of the two names, and 2.8 lacks the newer one.
    """
    name = "all_gather_single" if hasattr(distributed, "all_gather_single") else "all_gather_into_tensor"
    return getattr(distributed, name)(output, own, async_op=True)


@contextmanager
def launch_config(left_alone: set[signal.Signals], stop_wait_s: int, **settings: Any) -> Iterator[Any]:
    """The configuration of PyTorch's launcher, which leaves these signals to the handlers installed before.

    `stop_wait_s` is how long processes may take to end after one has failed. Older releases (2.8, 2.9) have a setting
    for neither: while this is entered, their handler and the default of their `close` are replaced.
    """
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.launcher.api import LaunchConfig

    if "signals_to_handle" in {f.name for f in fields(LaunchConfig)}:
        handled = ",".join(s.name for s in _LAUNCHER_SIGNALS if s not in left_alone)
        yield LaunchConfig(signals_to_handle=handled, shutdown_timeout=stop_wait_s, **settings)
        return
    launcher: Any = api
    terminate, close = launcher._terminate_process_handler, launcher.PContext.close
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in left_alone}
    ignored = [number for number, handler in handlers.items() if handler == signal.SIG_IGN]
    handlers |= dict.fromkeys(ignored, lambda number, frame: None)
    launcher._terminate_process_handler = lambda number, frame: handlers.get(number, terminate)(number, frame)
    launcher.PContext.close = partialmethod(close, timeout=stop_wait_s)
    try:
        yield LaunchConfig(**settings)
    finally:
        launcher._terminate_process_handler, launcher.PContext.close = terminate, close


_LAUNCHER_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def allow_tf32(allowed: bool) -> None:
    """Whether CUDA multiplies fp32 as TF32, in matrix products, convolutions and recurrent layers alike.

    `fp32_precision`, since PyTorch 2.9 the name to use, leaves the older state behind `allow_tf32` as it was. Reading
    that then raises, and torch.export and torch.compile read it. The older setters keep both in step.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
