"""How the network is executed: operation by operation, compiled (torch.compile), or traced (torch.jit.trace).

A traced network is fixed to one mode, so there are two of them on the same weights, one traced in training and one in
evaluation. The time and number of compilations are counted here. Private PyTorch names are in `torch_private`.
"""

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from vernier import torch_private
from vernier.clock import now_s
from vernier.config import Machine
from vernier.data.trusted import SealedFolder
from vernier.devices import Device
from vernier.errors import ConfigError, RunFailed
from vernier.folders import cache_home
from vernier.models.contract import layout_of
from vernier.records.run import Compilation
from vernier.references import given, use

Context = Callable[[], AbstractContextManager[Any]]


class Execution:
    """A network in the mode of a machine, in training and in evaluation.

    `frozen`: its weights will not change, nor will others be lent to it. Only then are they compiled in as constants,
    or their addresses recorded in a device's graph.
    """

    def __init__(self, model: nn.Module, machine: Machine, device: Device, *, frozen: bool = False) -> None:
        self.model, self._mode, self._device = model, machine.mode, device
        self._frozen = frozen
        # Folding rounds differently: only where the fastest was requested, so that others repeat figures of training.
        self._folds = machine.engine == "auto" and device.folds_batch_norm and machine.precision == "fp32"
        self._replayed: nn.Module | None = None
        self._autocast: Context = lambda: device.autocast(machine.precision)
        channels_last = machine.channels_last and device.channels_last
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._traced: dict[bool, nn.Module] = {}
        self._tracing_s = 0.0
        self._pads = machine.mode == "compile" or device.static_shapes
        self._compiled: _CompiledNetwork | None = None
        if machine.mode == "compile":
            # Compiled kernels are kept between runs.
            folder, seal = cache_home() / "inductor", (lambda: None)
            if os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder)) == str(folder):
                seal = _sealed(folder).seal
            freezes = frozen and device.compile_backend == "inductor"
            if freezes:
                torch.compiler.reset()  # constants of another network would count towards the recompilation limit
            if machine.compile != "default" and device.compile_backend != "inductor":
                raise ConfigError(
                    f"{given('machine.compile', machine.compile)} is for the inductor backend, and {device.name} is "
                    f"compiled by {device.compile_backend}. Use {use('machine.compile', 'default')}."
                )
            compiled: nn.Module = torch.compile(  # type: ignore[assignment]
                model, backend=device.compile_backend, dynamic=device.compile_dynamic, mode=machine.compile
            )
            self._compiled = _CompiledNetwork(compiled, _weights_as_constants if freezes else nullcontext, seal)

    @property
    def compilation(self) -> Compilation:
        """What compiling or tracing took so far."""
        if self._compiled is not None:
            return self._compiled.compilation
        return Compilation(mode=self._mode, seconds=self._tracing_s, graphs=len(self._traced))

    def training_network(self, example: torch.Tensor) -> nn.Module:
        """The network to train; it shares its weights with the model. `example` has the shape of a process's batch."""
        if self._mode == "eager":
            return self.model
        return self._compiled or self._trace(example, training=True)

    def evaluation_network(self, batch: int) -> Callable[[torch.Tensor], Any]:
        """The network to evaluate, for batches of up to `batch` images; call it with the model in evaluation mode."""
        network = self._inference_network() if self._mode == "eager" else self._compiled

        def forward(images: torch.Tensor) -> Any:
            net = network if network is not None else self._trace(images, training=False)
            with self._autocast():
                return _padded(net, images, batch) if self._pads else net(images)

        return forward

    def _inference_network(self) -> nn.Module:
        """The eager network; a frozen one as the device runs it fastest."""
        if not self._frozen:
            return self.model
        if self._replayed is None:
            folded = _fold_batch_norms(self.model) if self._folds else self.model
            self._replayed = self._device.for_inference(folded)
        return self._replayed

    def _trace(self, example: torch.Tensor, *, training: bool) -> nn.Module:
        if training not in self._traced:
            began_s = now_s()
            self._traced[training] = _traced(
                self.model, example.to(memory_format=self._layout), self._autocast, training=training
            )
            self._tracing_s += now_s() - began_s
        return self._traced[training]


# ------------------------------------------------------------------------------------------------------------- compile


def _weights_as_constants() -> AbstractContextManager[Any]:
    """While entered, networks are compiled with their weights folded in as constants (inductor's freezing).

    `torch.compile(options={"freezing": True})` has no effect (torch 2.13): constant folding reads the global setting.
    """
    return torch_private.patch_inductor(freezing=True)


@cache
def _sealed(folder: Path) -> SealedFolder:
    return SealedFolder(folder)


class _CompiledNetwork(nn.Module):
    """A compiled network that counts, outside of the compiled code, what its calls compile.

    The backward pass is compiled after the forward call has returned, so its seconds are counted at the next call.
    """

    def __init__(self, network: nn.Module, context: Context, seal: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.network, self._context, self._seal = network, context, seal
        self._counted: tuple[int, float] | None = None
        self.compilation = Compilation(mode="compile")
        self._called = {True: False, False: False}  # with gradients, without

    def forward(self, images: torch.Tensor) -> Any:
        self._counted = self._counted or torch_private.compiler_counters()
        try:
            with self._context():
                output = self.network(images)
        except Exception as error:
            if not torch_private.is_compiler_failure(error):
                raise
            eager = use("machine.mode", "eager")
            raise RunFailed(f"torch.compile failed: {str(error).splitlines()[0]}. Use {eager}.") from error
        self._count(self._counted, torch_private.compiler_counters())
        return output

    def _count(self, before: tuple[int, float], after: tuple[int, float]) -> None:
        graphs, seconds = after[0] - before[0], after[1] - before[1]
        training, so_far = torch.is_grad_enabled(), self.compilation
        if graphs:
            self._seal()
        self.compilation = Compilation(
            mode="compile",
            seconds=so_far.seconds + seconds,
            graphs=so_far.graphs + graphs,
            recompilations=so_far.recompilations + graphs * self._called[training],
        )
        self._called[training] = True
        self._counted = after


# --------------------------------------------------------------------------------------------------------------- trace


@contextmanager
def _modes_restored(model: nn.Module) -> Iterator[None]:
    """Afterwards each module is in training or evaluation mode as it was before."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _traced(model: nn.Module, example: torch.Tensor, autocast: Context, *, training: bool) -> nn.Module:
    """The model's operations on `example`, recorded in one mode; its statistics and random state stay as they were."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with (
            _modes_restored(model),
            warnings.catch_warnings(action="ignore"),  # tracing is deprecated and fixes shapes: both are intended
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
            torch.set_grad_enabled(training),
            autocast(),
        ):
            if not training:
                model.eval()
            torch.set_autocast_cache_enabled(False)  # a cached cast would be recorded as a constant
            try:
                network: nn.Module = torch.jit.trace(  # type: ignore[no-untyped-call]
                    model, example.detach().clone(), check_trace=False
                )
            finally:
                torch.set_autocast_cache_enabled(True)
    except RuntimeError as error:
        raise ConfigError(
            f"This model cannot be traced: {str(error).splitlines()[0]}. Use {use('machine.mode', 'eager')} or "
            f"{use('machine.mode', 'compile')}."
        ) from error
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    return network


# ---------------------------------------------------------------------------------------------------------- evaluation


def _padded(network: Callable[[torch.Tensor], Any], images: torch.Tensor, batch: int) -> Any:
    """The network's outputs for fewer images than a batch, computed on a whole one, so that no other shape is compiled.

    The whole batch has the memory layout of the images, for the same reason.
    """
    count = len(images)
    if count == batch:
        return network(images)
    whole = images.new_empty_strided((batch, *images.shape[1:]), (images[0].numel(), *images.stride()[1:])).zero_()
    whole[:count] = images
    output = network(whole)
    return output[:count] if isinstance(output, torch.Tensor) else tuple(part[:count] for part in output)


@contextmanager
def evaluating(model: nn.Module, device: Device) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards each module gets its own mode back: frozen ones stay frozen."""
    with _modes_restored(model), device.without_gradients():
        model.eval()
        yield


@contextmanager
def borrowed(model: nn.Module, weights: dict[str, torch.Tensor] | None) -> Iterator[None]:
    """Give the model other weights while entered, in any mode; its own are restored at the end.

    Values are copied: compiled code and a device's graphs may know a weight by its memory.
    """
    if weights is None:
        yield
        return
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    live = {name: everything[name].detach() for name in weights}  # others, such as default boxes, stay
    own = {name: tensor.clone() for name, tensor in live.items()}
    try:
        _copy_into(live, weights)
        yield
    finally:
        _copy_into(live, own)


@torch.no_grad()
def _copy_into(live: dict[str, torch.Tensor], weights: dict[str, torch.Tensor]) -> None:
    for name, tensor in weights.items():
        live[name].copy_(tensor)


def _fold_batch_norms(model: nn.Module) -> nn.Module:
    """A copy of the model in evaluation mode, with batch norms folded; the model itself where it has none to fold.

    In evaluation a batch norm is one factor and one summand per channel, so it can be part of the weights of the
    convolution before it: the same result but for rounding, without reading and writing every activation once more.
    """
    # In an outside model, the order in which layers are registered says nothing about the order in which they run.
    if layout_of(model).outside or not any(_pairs(module) for module in model.modules()):
        return model
    folded = copy.deepcopy(model).eval()
    for module in list(folded.modules()):
        for (conv_name, conv), (norm_name, norm) in _pairs(module):
            module.add_module(conv_name, fuse_conv_bn_eval(conv, norm))
            module.add_module(norm_name, nn.Identity())
    return folded


def _pairs(module: nn.Module) -> list[tuple[tuple[str, nn.Conv2d], tuple[str, nn.BatchNorm2d]]]:
    """Convolutions of a module with the batch norm registered after each: the networks of the catalogue run it next."""
    children = list(module.named_children())
    return [
        ((conv_name, conv), (norm_name, norm))
        for (conv_name, conv), (norm_name, norm) in pairwise(children)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats
    ]
