"""What the engine may ask of a device."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch


class Device(Protocol):
    """A kind of device that PyTorch runs on."""

    name: str

    @classmethod
    def available(cls) -> bool: ...

    def prepare(self) -> None:
        """Settings of the process that suit this device; called once, before tensors are made."""
        ...

    def torch_device(self, local_rank: int) -> torch.device: ...

    def identity(self) -> list[dict[str, Any]]:
        """One entry a device: index, name, uuid where there is one, memory."""
        ...

    def refuse(self, precision: str, mode: str, *, allow_slow: bool) -> str:
        """Why this combination cannot run here and what to use instead; empty when it can."""
        ...

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """The context in which the network computes in this precision. Weights, batch norm and loss stay fp32."""
        ...

    def synchronize(self) -> None:
        """Wait until everything queued has been done, so that a clock read afterwards is true."""
        ...
