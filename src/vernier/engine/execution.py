"""How the network is executed: operation by operation, compiled (torch.compile), or traced (torch.jit.trace).

A traced network is fixed to one mode, so there are two of them on the same weights, one traced in training and one in
evaluation. The time and number of compilations are counted here. Private PyTorch names are in `torch_private`.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vernier import torch_private
from vernier.clock import now_s
from vernier.config import Machine
from vernier.devices import Device
from vernier.errors import ConfigError, RunFailed
from vernier.folders import cache_home
from vernier.records.run import Compilation
from vernier.references import use
from vernier.torch_private import CompilerCounters

from .runtimes.folding import fold_batch_norms

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
        self._compiled: CompiledNetwork | None = None
        if machine.mode == "compile":
            # Compiled kernels are kept between runs.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_home() / "inductor"))
            freezes = frozen and device.compile_backend == "inductor"
            if freezes:
                torch.compiler.reset()  # constants of another network would count towards the recompilation limit
            compiled: nn.Module = torch.compile(  # type: ignore[assignment]
                model, backend=device.compile_backend, dynamic=device.compile_dynamic
            )
            self._compiled = CompiledNetwork(compiled, weights_as_constants if freezes else nullcontext)

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
                return padded(net, images, batch) if self._pads else net(images)

        return forward

    def _inference_network(self) -> nn.Module:
        """The eager network; a frozen one as the device runs it fastest."""
        if not self._frozen:
            return self.model
        if self._replayed is None:
            folded = fold_batch_norms(self.model) if self._folds else self.model
            self._replayed = self._device.for_inference(folded)
        return self._replayed

    def _trace(self, example: torch.Tensor, *, training: bool) -> nn.Module:
        if training not in self._traced:
            began_s = now_s()
            self._traced[training] = traced(
                self.model, example.to(memory_format=self._layout), self._autocast, training=training
            )
            self._tracing_s += now_s() - began_s
        return self._traced[training]


# ------------------------------------------------------------------------------------------------------------- compile


def weights_as_constants() -> AbstractContextManager[Any]:
    """While entered, networks are compiled with their weights folded in as constants (inductor's freezing).

    `torch.compile(options={"freezing": True})` has no effect (torch 2.13): constant folding reads the global setting.
    """
    return torch_private.patch_inductor(freezing=True)


def remove_damaged_library(message: str) -> str:
    """Remove a half-written file of the cache, which a killed process left, and say so; nothing for other failures."""
    damaged = re.search(r"(/\S+\.so): (file too short|invalid ELF header)", message)
    if damaged is None or cache_home() not in Path(damaged[1]).parents:
        return ""
    Path(damaged[1]).unlink(missing_ok=True)
    return "The file was written by a process that was killed; it was removed: run the same command again."


class CompiledNetwork(nn.Module):
    """A compiled network that counts, outside of the compiled code, what its calls compile.

    The backward pass is compiled after the forward call has returned, so its seconds are counted at the next call.
    """

    def __init__(self, network: nn.Module, context: Context) -> None:
        super().__init__()
        self.network, self._context = network, context
        self._counted: CompilerCounters | None = None
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
            instead = remove_damaged_library(str(error)) or f"Use {use('machine.mode', 'eager')}."
            raise RunFailed(f"torch.compile failed: {str(error).splitlines()[0]}. {instead}") from error
        self._count(self._counted, torch_private.compiler_counters())
        return output

    def _count(self, before: CompilerCounters, after: CompilerCounters) -> None:
        graphs, training, so_far = after.graphs - before.graphs, torch.is_grad_enabled(), self.compilation
        self.compilation = Compilation(
            mode="compile",
            seconds=so_far.seconds + (after.seconds - before.seconds),
            graphs=so_far.graphs + graphs,
            recompilations=so_far.recompilations + graphs * self._called[training],
        )
        self._called[training] = True
        self._counted = after


# --------------------------------------------------------------------------------------------------------------- trace


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Afterwards each module is in training or evaluation mode as it was before."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def traced(model: nn.Module, example: torch.Tensor, autocast: Context, *, training: bool) -> nn.Module:
    """The model's operations on `example`, recorded in one mode; its statistics and random state stay as they were."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with (
            modes_restored(model),
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


def padded(network: Callable[[torch.Tensor], Any], images: torch.Tensor, batch: int) -> Any:
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
