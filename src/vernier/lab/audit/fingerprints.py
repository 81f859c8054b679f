"""Fingerprints of tensors: 64-bit checksums of their bits, equal wherever and in whatever order they are computed.

A device adds 32-bit words along the rows and the columns of each tensor; integers have no rounding, so the sums are the
same for any order of additions, and any PyTorch device can do it at the speed of its memory. The host weighs the sums
with fixed random numbers, so positions count. One changed word always changes the fingerprint. Two swapped ones are
missed with a probability below 2^-31. What changes at random is missed with 2^-64. Missed for certain is what leaves
every sum of rows and of columns as it was, which takes four changed words at the corners of a rectangle, or more.
`guard` compares and records fingerprints.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from vernier.devices import Device
from vernier.engine.training.checkpoints.contents import TensorFiles
from vernier.records.events import FingerprintEvent

KINDS = ("gradients", "weights", "statistics", "optimizer")
COLUMNS = 4096
"""Words per row. A tensor with fewer, such as a bias, is copied to the host as it is."""
_MOST_ON_DEVICE, _MOST_ON_HOST = 32, 1024
_Words = npt.NDArray[np.uint32]


def fingerprint(tensor: torch.Tensor) -> int:
    """The fingerprint of one tensor: 64 bits, of its elements in logical order, whatever its memory format."""
    return _weigh(_words_in(tensor), _as_words(_sums(tensor)))


def combine(values: Iterable[int]) -> int:
    """One fingerprint of several, in order."""
    words = np.array(list(values), dtype=np.uint64).view(np.uint32)
    return fingerprint(torch.from_numpy(words.view(np.int32).copy())) if len(words) else 0


def _words_in(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // 4)


def _sums(tensor: torch.Tensor) -> torch.Tensor:
    """The sums of 32-bit words over rows and over columns, modulo 2^32, on the device; few words as they are."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.element_size() < 4:
        # A view of a larger tensor may begin in the middle of a word.
        aligned = flat.storage_offset() * flat.element_size() % 4 == 0
        flat = (flat if aligned else flat.clone()).view(torch.uint8)
        if short := -flat.numel() % 4:
            flat = torch.cat([flat, flat.new_zeros(short)])
    words = flat.view(torch.int32)
    if len(words) <= COLUMNS:
        return words
    whole = len(words) - len(words) % COLUMNS
    grid, rest = words[:whole].view(-1, COLUMNS), words[whole:]
    rows, columns = grid.sum(1, dtype=torch.int32), grid.sum(0, dtype=torch.int32)
    columns[: len(rest)] += rest
    return torch.cat([rows, rest.sum(dtype=torch.int32).view(1), columns])


def _as_words(sums: torch.Tensor) -> _Words:
    return sums.cpu().numpy().view(np.uint32)


def _weigh(words: int, sums: _Words) -> int:
    """The fingerprint of a tensor with so many words from its sums."""
    if words <= COLUMNS:
        rows, columns = sums.sum(dtype=np.uint32)[None], sums
    else:
        rows, columns = sums[:-COLUMNS], sums[-COLUMNS:]
    # Odd weights for rows and even ones for columns: a change of d = 2^b x odd in one element changes the sum by
    # d x odd + d x even, which is no multiple of 2^(b + 1). So no single change can cancel.
    odd, even = _random(len(rows), 1) | np.uint64(1), _random(len(columns), 2) << np.uint64(1)
    return (int((rows * odd).sum()) + int((columns * even).sum())) % 2**64


@cache
def _random(count: int, stream: int) -> npt.NDArray[np.uint64]:
    """The first numbers of SplitMix64 (Steele, Lea, Flood 2014), the same on every machine and in every version."""
    z = (np.arange(1, count + 1, dtype=np.uint64) + (np.uint64(stream) << np.uint64(40))) * np.uint64(
        0x9E3779B97F4A7C15
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class SumsOf:
    """The sums of tensors that come one by one, by their number; nothing waits for the device."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[int, torch.Tensor]] = {}

    def add(self, number: int, tensor: torch.Tensor) -> None:
        # Copied: the words of a small tensor are those of the tensor itself, which training changes next.
        self._sums[number] = _words_in(tensor), _sums(tensor).clone()

    def values(self) -> list[int]:
        """The fingerprints in the order of numbers. Waits for the device."""
        ordered = [self._sums[number] for number in sorted(self._sums)]
        if not ordered:
            return []
        # One copy to the host for all of them.
        parts = torch.split(torch.cat([sums for _, sums in ordered]).cpu(), [len(sums) for _, sums in ordered])
        return [_weigh(words, _as_words(part)) for (words, _), part in zip(ordered, parts, strict=True)]


@dataclass
class _Taken:
    """The sums of one step, on the device, by kind."""

    step: int
    kinds: dict[str, SumsOf] = field(default_factory=dict)
    shards: dict[int, SumsOf] = field(default_factory=dict)
    """With exact reduction, the gradients of each virtual shard that this process computed."""
    spans: list[tuple[Any, Any]] = field(default_factory=list)
    """Moments of the device between which they were computed."""


class Fingerprints:
    """Takes those of a training's tensors every so many steps. They stay on the device until they are read."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: Device, every_steps: int) -> None:
        self._model, self._optimizer, self._device, self._every = model, optimizer, device, every_steps
        self._taken: list[_Taken] = []
        self._read_early: list[FingerprintEvent] = []
        self._latest = -1
        """The last step whose weights were taken."""

    def due(self, step: int) -> bool:
        """Whether it is one of those steps."""
        return self._every > 0 and step % self._every == 0

    def take_gradients(self, step: int, shards: dict[int, SumsOf]) -> None:
        """Before the update of a step, if it is one of those, with the sums of its virtual shards."""
        if self.due(step):
            gradients = (p.grad for p in self._model.parameters() if p.grad is not None)
            self._take(step, {"gradients": gradients})
            self._taken[-1].shards = shards

    def take_state(self, step: int, *, always: bool = False) -> None:
        """After the update of a step, if it is one of those or `always`, unless fingerprints are switched off."""
        begun = bool(self._taken) and self._taken[-1].step == step
        if (begun or (always and self._every > 0)) and self._latest != step:
            self._latest = step
            self._take(step, {kind: named.values() for kind, named in self._state().items()})

    def of_copy(self, step: int, files: TensorFiles) -> FingerprintEvent:
        """What `take_state` takes, but of the copy of it that a checkpoint gets."""
        copies, on = files["model.safetensors"] | files["optimizer.safetensors"], self._torch_device
        values = {
            kind: [fingerprint(copies[name]) for name, tensor in named.items() if tensor.device == on]
            for kind, named in self._state().items()
        }
        return _event(step, 0.0, values)

    def _state(self) -> dict[str, dict[str, torch.Tensor]]:
        """What is learned, by kind, with its names in checkpoints."""
        model, states = self._model, self._optimizer.state
        saved = model.state_dict().keys()  # buffers that are not saved, such as default boxes, are not learned
        # In the order of the model: that of an optimizer's state is another one after a resume.
        of_optimizer = {
            f"{name}/{key}": value
            for name, p in model.named_parameters()
            for key, value in sorted(states.get(p, {}).items())
        }
        return {
            "weights": dict(model.named_parameters()),
            "statistics": {name: buffer for name, buffer in model.named_buffers() if name in saved},
            "optimizer": {name: value for name, value in of_optimizer.items() if isinstance(value, torch.Tensor)},
        }

    @property
    def _torch_device(self) -> torch.device:
        return next(self._model.parameters()).device

    def _take(self, step: int, kinds: Mapping[str, Iterable[torch.Tensor]]) -> None:
        if not self._taken or self._taken[-1].step != step:
            # A measurement never reads them: without a limit they would fill the device.
            if len(self._taken) == _MOST_ON_DEVICE:
                self._device.synchronize()
                self._read_early = self.pop()[-_MOST_ON_HOST:]
            self._taken.append(_Taken(step))
        taken, began, on = self._taken[-1], self._device.record_event(), self._torch_device
        for kind, tensors in kinds.items():
            # Step counters of optimizers are on the host, and not of the device's work.
            taken.kinds[kind] = SumsOf()
            for number, tensor in enumerate(tensor for tensor in tensors if tensor.device == on):
                taken.kinds[kind].add(number, tensor)
        taken.spans.append((began, self._device.record_event()))

    def clear(self) -> None:
        """Forget what was not read: its steps are computed again."""
        self._taken, self._read_early, self._latest = [], [], -1

    def pop(self) -> list[FingerprintEvent]:
        """Those since the last call; the device must be synchronized."""
        taken, self._taken = self._taken, []
        early, self._read_early = self._read_early, []
        return [*early, *map(self._read, taken)]

    def _read(self, taken: _Taken) -> FingerprintEvent:
        values = {kind: sums.values() for kind, sums in taken.kinds.items()}
        shards = tuple(f"{combine(sums.values()):016x}" for _, sums in sorted(taken.shards.items())) or None
        seconds = sum(self._device.elapsed_s(*span) for span in taken.spans)
        return replace(_event(taken.step, seconds, values), shards=shards)


def _event(step: int, seconds: float, values: Mapping[str, list[int]]) -> FingerprintEvent:
    """The event of fingerprints by kind."""
    return FingerprintEvent(
        step=step,
        seconds=seconds,
        shards=None,
        tensors=_pack([*values.get("gradients", ()), *values["weights"]]),
        **{kind: f"{combine(each):016x}" for kind, each in values.items()},
    )


def _pack(values: list[int]) -> str:
    """The lower 32 bits of each value as base64: enough to tell which tensor of two runs differs."""
    return base64.b64encode(np.array(values, dtype=np.uint64).astype("<u4").tobytes()).decode()


def differing_kinds(one: FingerprintEvent, other: FingerprintEvent) -> tuple[str, ...]:
    """The kinds that both have, and that differ. A fingerprint before a checkpoint has no gradients."""
    values = ((kind, getattr(one, kind), getattr(other, kind)) for kind in KINDS)
    return tuple(kind for kind, was, now in values if was != now and None not in (was, now))


def differing_tensors(model: nn.Module, one: FingerprintEvent, other: FingerprintEvent) -> tuple[str, ...]:
    """The names of the weights that differ."""
    names = [name for name, _ in model.named_parameters()]
    # Behind those of the gradients, which a fingerprint before a checkpoint lacks.
    a, b = (np.frombuffer(base64.b64decode(each.tensors), "<u4")[-len(names) :] for each in (one, other))
    return tuple(name for name, first, second in zip(names, a, b, strict=False) if first != second)
