"""How the network is executed: operation by operation, compiled (torch.compile), or traced (torch.jit.trace).

A traced network has its mode burnt in, so there are two of them, one traced in training and one in evaluation, on the
same weights. What compiling cost, and how often it had to be done again, is counted here and reported apart.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from vernier.clock import now_s
from vernier.config import Machine
from vernier.devices import Device
from vernier.errors import ConfigError, RunFailed
from vernier.folders import cache_home

Around = Callable[[], AbstractContextManager[Any]]
Autocast = Around


@dataclass
class Preparation:
    """What it took to make the network executable in its mode."""

    mode: str
    seconds: float = 0.0
    graphs: int = 0
    recompilations: int = 0
    """Graphs compiled after the first call of training and of evaluation: for other shapes, or other settings."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Execution:
    """A network in the mode of a machine, in training and in evaluation. `frozen`: its weights will not change."""

    def __init__(
        self, model: nn.Module, machine: Machine, device: Device, autocast: Autocast, *, frozen: bool = False
    ) -> None:
        self.model, self._mode, self._device, self._autocast = model, machine.mode, device, autocast
        self._layout = torch.channels_last if machine.channels_last else torch.contiguous_format
        self._traced: dict[bool, nn.Module] = {}
        self.spent = Preparation(mode=machine.mode)
        self._pads = machine.mode == "compile" or device.static_shapes
        if machine.mode == "compile":
            use_cache()
            freezes = frozen and device.compile_backend == "inductor"
            if freezes:
                torch._dynamo.reset()  # constants of another network would count towards the limit of recompilations
            self._compiled = _counted(_compiled(model, device), self.spent, freezing if freezes else nullcontext)

    def training_network(self, example: torch.Tensor) -> nn.Module:
        """What is trained: shares its weights with the model. `example` has the shape of a process's batch."""
        if self._mode == "eager":
            return self.model
        if self._mode == "compile":
            return self._compiled
        return self._trace(example, training=True)

    def evaluation_network(self, batch: int) -> Callable[[torch.Tensor], Any]:
        """What is evaluated, in batches of at most so many images; the model must be in evaluation mode when called."""
        network = self.model if self._mode == "eager" else self._compiled if self._mode == "compile" else None
        replayed = None if network is None else self._device.for_inference(network)

        def forward(images: torch.Tensor) -> Any:
            net = replayed if replayed is not None else self._trace(images, training=False)
            with self._autocast():
                return padded(net, images, batch) if self._pads else net(images)

        return forward

    def _trace(self, example: torch.Tensor, *, training: bool) -> nn.Module:
        if training not in self._traced:
            began = now_s()
            self._traced[training] = traced(
                self.model, example.to(memory_format=self._layout), self._autocast, training=training
            )
            self.spent.seconds += now_s() - began
            self.spent.graphs += 1
        return self._traced[training]


# ------------------------------------------------------------------------------------------------------------- compile


def use_cache() -> None:
    """Keep compiled kernels between runs: in Vernier's cache folder, unless TORCHINDUCTOR_CACHE_DIR says otherwise."""
    home = cache_home()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home / "inductor"))


def _compiled(model: nn.Module, device: Device) -> nn.Module:
    compiled: nn.Module = torch.compile(model, backend=device.compile_backend)  # type: ignore[assignment]
    return compiled


def freezing() -> AbstractContextManager[Any]:
    """While entered, networks are compiled with their weights as constants.

    An option of torch.compile of that name does nothing: what makes parameters constants looks at the setting of all.
    """
    from torch._inductor import config

    patched: AbstractContextManager[Any] = config.patch(freezing=True)
    return patched


def _graphs_and_seconds() -> tuple[int, float]:
    from torch._dynamo import utils

    times = utils.compilation_time_metrics
    seconds = sum(sum(times.get(name, ())) for name in ("_compile.compile_inner", "backward._backward_impl"))
    return int(utils.counters["stats"]["unique_graphs"]), float(seconds)


def _counted(network: nn.Module, spent: Preparation, around: Around) -> nn.Module:
    """The network, with what its calls compile noted. Compilation of the backward pass is noted at the next call."""
    seen = {"graphs": 0, "seconds": 0.0, "began": False}
    first_call = {True: True, False: True}

    def before(module: nn.Module, arguments: Any) -> None:
        if not seen["began"]:
            seen["graphs"], seen["seconds"] = _graphs_and_seconds()
            seen["began"] = True

    def after(module: nn.Module, arguments: Any, output: Any) -> None:
        graphs, seconds = _graphs_and_seconds()
        new, training = int(graphs - seen["graphs"]), torch.is_grad_enabled()
        spent.graphs += new
        spent.seconds += seconds - seen["seconds"]
        spent.recompilations += 0 if first_call[training] else new
        first_call[training] = False
        seen["graphs"], seen["seconds"] = graphs, seconds

    return CountedCalls(network, before, after, around)


class CountedCalls(nn.Module):
    """A compiled network whose calls are watched from outside, where they are not compiled themselves."""

    def __init__(
        self, network: nn.Module, before: Callable[..., None], after: Callable[..., None], around: Around
    ) -> None:
        super().__init__()
        self.network = network
        self._before, self._after, self._around = before, after, around

    def forward(self, images: torch.Tensor) -> Any:
        self._before(self, images)
        try:
            with self._around():
                output = self.network(images)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise RunFailed(f"torch.compile failed: {str(error).splitlines()[0]}. Use --mode eager.") from error
        self._after(self, images, output)
        return output


# --------------------------------------------------------------------------------------------------------------- trace


def traced(model: nn.Module, example: torch.Tensor, autocast: Autocast, *, training: bool) -> nn.Module:
    """The operations the model does for `example`, recorded in one mode; its statistics and chance are left as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if not training:
        model.eval()
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
            torch.set_grad_enabled(training),
            autocast(),
        ):
            torch.set_autocast_cache_enabled(False)  # a cached cast would be burnt in as a constant
            warnings.simplefilter("ignore")  # that tracing is old, and that shapes are burnt in: both are meant
            try:
                made = torch.jit.trace(model, example.detach().clone(), check_trace=False)  # type: ignore[no-untyped-call]
            finally:
                torch.set_autocast_cache_enabled(True)
    except RuntimeError as error:
        raise ConfigError(
            f"This network cannot be traced: {str(error).splitlines()[0]}. Use --mode eager or compile."
        ) from error
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        for module, mode in modes:
            module.training = mode
    network: nn.Module = made
    return network


# ---------------------------------------------------------------------------------------------------------- evaluation


def padded(network: Callable[[torch.Tensor], Any], images: torch.Tensor, batch: int) -> Any:
    """The network's outputs for fewer images than a batch, computed on a whole one: no other shape is ever compiled.

    Nor another memory layout: the whole batch has that of the images.
    """
    count = len(images)
    if count == batch:
        return network(images)
    whole = images.new_empty_strided((batch, *images.shape[1:]), (images[0].numel(), *images.stride()[1:])).zero_()
    whole[:count] = images
    return pytree.tree_map(lambda t: t[:count], network(whole))


@contextmanager
def borrowed(model: nn.Module, weights: dict[str, torch.Tensor] | None) -> Iterator[None]:
    """The model with other weights in the place of its own, in any mode and without a copy; its own are put back."""
    if weights is None:
        yield
        return
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    own = {name: everything[name] for name in weights}  # buffers that no checkpoint has, such as default boxes, stay
    kept = {name: tensor.data for name, tensor in own.items()}
    try:
        for name, tensor in own.items():
            tensor.data = weights[name].data
        yield
    finally:
        for name, tensor in own.items():
            tensor.data = kept[name]
