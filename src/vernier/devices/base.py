"""The contract every device keeps: what it is, what it can do, and the few things the engine asks of it.

A device file answers questions and calls its vendor's library; it knows no model, no data and no process group.
`Answer` is how it says what it can do: yes, slow (only with --allow-slow), or refused, with the reason and what to use instead.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from vernier.records.environment import DeviceInfo

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
MODES = ("eager", "compile", "trace")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Answer:
    """Whether a device does something; where it does not, why, and what does."""

    verdict: Literal["yes", "slow", "refused"]
    why: str = ""
    instead: str = ""

    def __str__(self) -> str:
        return self.verdict if self.verdict == "yes" else f"{self.verdict}: {self.why}; use {self.instead}"


YES = Answer("yes")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes a process holds on its device now, the most it held since the last reset, and what there is."""

    allocated_bytes: int
    peak_bytes: int
    total_bytes: int | None = None


class Device:
    """A kind of device that PyTorch runs on. The defaults are those of a device that computes before it returns."""

    name: ClassVar[str]
    backend: ClassVar[str | None]
    """What torch.distributed talks over; None: one process only."""
    asynchronous: ClassVar[bool] = True
    """Work is queued: a clock read without `synchronize` says nothing."""
    pins_memory: ClassVar[bool] = False
    """Copies from page-locked memory run beside computation."""
    static_shapes: ClassVar[bool] = False
    """A new batch size costs a compilation, so short batches are padded and masked."""
    compile_backend: ClassVar[str] = "inductor"
    visibility_variable: ClassVar[str] = ""
    """Environment variable that limits a process to some devices of this kind; empty: there is none."""
    native_sync_bn: ClassVar[bool] = False
    """PyTorch's own SyncBatchNorm runs here."""

    @classmethod
    def available(cls) -> bool:
        raise NotImplementedError

    def count(self) -> int:
        """Devices of this kind that this process can see."""
        return 1

    def torch_device(self, local_rank: int) -> torch.device:
        """Where the tensors of a process live."""
        return torch.device(self.name, local_rank % max(1, self.count()))

    def identity(self) -> list[DeviceInfo]:
        """All devices of this kind."""
        raise NotImplementedError

    def answer(self, precision: str, mode: str) -> Answer:
        """Whether this precision and mode run here together."""
        raise NotImplementedError

    def deterministic(self) -> Answer:
        """Whether a run can be repeated bit for bit."""
        return YES

    def refuse(self, precision: str, mode: str, *, allow_slow: bool) -> str:
        """Why this combination cannot run here and what to use instead; empty when it can."""
        answer = self.answer(precision, mode)
        if answer.verdict == "yes" or (answer.verdict == "slow" and allow_slow):
            return ""
        insist = ", or --allow-slow to insist" if answer.verdict == "slow" else ""
        return f"{answer.why}: use {answer.instead}{insist}."

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        """Settings of the process that suit this device; called once, before tensors are made."""
        if deterministic:
            torch.use_deterministic_algorithms(True)

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """The context in which the network computes in this precision. Weights, batch norm and loss stay fp32."""
        if precision not in DTYPES:
            return nullcontext()
        return torch.autocast(self.name, dtype=DTYPES[precision])

    def upload(self, tensor: torch.Tensor, place: torch.device) -> torch.Tensor:
        """A copy on the device; the host's memory may be overwritten after `uploads_done`."""
        return tensor.to(place)

    def uploads_done(self) -> None:
        """Wait until copies have left the host's memory."""

    def synchronize(self) -> None:
        """Wait until everything queued has been done, so that a clock read afterwards is true."""

    def mark_step(self) -> None:
        """Tell a device that collects operations to run what it has collected."""

    def memory(self) -> Memory | None:
        """What this process holds; None where the device cannot say."""
        return None

    def reset_peak_memory(self) -> None:
        """Begin to look for the peak anew."""

    def for_inference(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model wrapped in what the device has for replaying inference; itself where there is nothing."""
        return model
