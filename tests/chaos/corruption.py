"""Flips a bit in one process of a run: `python -m tests.chaos.corruption FAULT train ...` is `vernier train ...`.

FAULT is a `Fault` as JSON.

Places: `weight`, `optimizer` (its state), `batch` (a normalized image), `convolution` (its result), `gradient` (of one
micro-batch), `all-reduce` (the mean gradient in this process), `checkpoint` (a tensor in memory while it is saved).
"""

import json
import os
import random
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from vernier.__main__ import main
from vernier.data.augment.normalize import Normalizer
from vernier.engine.training import loop
from vernier.engine.training.step import TrainStep

PLACES = ("weight", "optimizer", "batch", "convolution", "gradient", "all-reduce", "checkpoint")


@dataclass(frozen=True)
class Fault:
    """Flip `bit` of an element; `tensor` and `element` are taken modulo what there is."""

    place: str
    step: int
    """From 1; with `rate` or `stuck`: every step from here on."""
    rank: int = 0
    micro: int = 0
    """The micro-batch of the process: of several, a virtual shard. With `rate` or `stuck`: every one."""
    tensor: int = 0
    element: int = 0
    bit: int = 20
    stuck: bool = False
    """The bit is 1 whenever it is computed."""
    rate: float = 0.0
    """The bit flips with this probability whenever it is computed."""

    def arguments(self, *words: str) -> list[str]:
        """The command line of a training that has it."""
        return [sys.executable, "-m", "tests.chaos.corruption", json.dumps(asdict(self)), *words]


class Injection:
    """The fault in this process; `flips` counts how often it happened."""

    def __init__(self, fault: Fault | None) -> None:
        self.arm(fault)
        self._hook: Any = None

    def arm(self, fault: Fault | None) -> None:
        """Replace the fault by another one, or by none, before the next step."""
        self.fault, self.flips, self._step, self._micro, self._fresh = fault, 0, 0, -1, True
        self._rng = random.Random(repr(fault))

    def _now(self, place: str, *, micro: bool = False) -> bool:
        fault = self.fault
        if fault is None or fault.place != place or self._step < fault.step:
            return False
        if fault.rate:
            return self._rng.random() < fault.rate
        if fault.stuck:
            return True
        # Once: a shard that is computed again is right the second time.
        return self._step == fault.step and self.flips == 0 and (not micro or self._micro == fault.micro)

    def flip(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with the bit flipped; another one, with the same strides."""
        assert self.fault is not None
        self.flips += 1
        with torch.no_grad():
            damaged = tensor.detach().clone()
            words = damaged.as_strided((damaged.numel(),), (1,)).view(torch.int32)
            at, bit = self.fault.element % len(words), (1 << self.fault.bit) - (2**32 if self.fault.bit == 31 else 0)
            words[at] = words[at] | bit if self.fault.stuck else words[at] ^ bit
        return damaged

    def install(self) -> "Injection":
        """Replace the functions of this process that compute what is to be damaged."""
        call, update, loss, normalize = TrainStep.__call__, TrainStep._update, TrainStep._loss, Normalizer.__call__
        files = loop.tensor_files

        def step(this: TrainStep, number: int, batches: Any) -> Any:
            self._step, self._micro = number + 1, -1
            if self._fresh:
                self._add_hook(this.model)
            states = [s for p in this.model.parameters() for s in this.optimizer.state.get(p, {}).values()]
            places = {"weight": list(this.model.parameters()), "optimizer": [s for s in states if s.dim()]}
            for place, tensors in places.items():
                if self._now(place):
                    chosen = self._choose(tensors)
                    chosen.data.copy_(self.flip(chosen.data))
            return call(this, number, batches)

        def loss_of(this: TrainStep, *words: Any, **options: Any) -> Any:
            self._micro += 1
            return loss(this, *words, **options)

        def normalized(this: Normalizer, images: torch.Tensor) -> torch.Tensor:
            out = normalize(this, images)
            return self.flip(out) if self._now("batch", micro=True) else out

        def updated(this: TrainStep, number: int) -> None:
            if self._now("all-reduce"):
                chosen = self._choose([p for p in this.model.parameters() if p.grad is not None])
                # In its own memory, which an exact reduction uses again.
                chosen.grad.copy_(self.flip(chosen.grad))
            update(this, number)

        def tensors(*words: Any) -> Any:
            written = files(*words)
            if self._now("checkpoint"):
                model = written["model.safetensors"]
                names = sorted(n for n, t in model.items() if t.is_floating_point() and t.numel() > 1)
                chosen = self._choose(names)
                written = {**written, "model.safetensors": {**model, chosen: self.flip(model[chosen])}}
            return written

        TrainStep.__call__, TrainStep._update, TrainStep._loss = step, updated, loss_of  # type: ignore[method-assign]
        Normalizer.__call__ = normalized  # type: ignore[method-assign]
        loop.tensor_files = tensors
        return self

    def _choose(self, tensors: list[Any]) -> Any:
        assert self.fault is not None
        return tensors[self.fault.tensor % len(tensors)]

    def _add_hook(self, model: nn.Module) -> None:
        """To the parameter or the layer of the fault."""
        self._fresh = False
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self.fault is None:
            return
        if self.fault.place == "gradient":
            chosen = self._choose(list(model.parameters()))
            self._hook = chosen.register_hook(lambda g: self.flip(g) if self._now("gradient", micro=True) else None)
        elif self.fault.place == "convolution":
            self._hook = self._choose([m for m in model.modules() if isinstance(m, nn.Conv2d)]).register_forward_hook(
                self._after_convolution
            )

    def _after_convolution(self, module: nn.Module, given: Any, out: torch.Tensor) -> torch.Tensor | None:
        if not self._now("convolution", micro=True):
            return None
        # In place of the result, and unseen by autograd, so that backward still reaches the layers below.
        out.data.copy_(self.flip(out))
        return out


if __name__ == "__main__":
    planned = Fault(**json.loads(sys.argv[1]))
    if planned.rank == int(os.environ.get("RANK", "0")):
        Injection(planned).install()
    sys.argv = ["vernier", *sys.argv[2:]]
    sys.exit(main())
