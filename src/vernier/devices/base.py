"""The contract of every device: what it is, what it can do, and the operations the engine needs.

A device file answers questions and calls its vendor's library; it knows no model, no data and no process group. An
`Answer` says what a device can do: yes, slow (only with --allow-slow), or refused, with the reason and an alternative.
docs/add-a-device.md shows a complete device of another package.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vernier.clock import now_s
from vernier.frozen import frozen
from vernier.records.environment import DeviceInfo
from vernier.records.run import Compilation
from vernier.references import plain, use

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
MODES = ("eager", "compile", "trace")
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""Names of PyTorch's types."""


@dataclass(frozen=True)
class Answer:
    """Whether a device can do something; if not, why, and what to use instead."""

    verdict: Literal["yes", "slow", "refused"]
    why: str = ""
    instead: str = ""

    def __str__(self) -> str:
        return self.verdict if self.verdict == "yes" else plain(f"{self.verdict}: {self.why}; use {self.instead}")


YES = Answer("yes")


@frozen
class Ability(Answer):
    """A device's answer for one precision and mode."""

    device: str
    precision: str
    mode: str


@frozen
class Memory:
    """Memory of a process on its device: allocated now, and the peak since the last reset."""

    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int | None = None
    """What the allocator holds for this process, freed blocks included: out of memory follows this. None: unknown."""


StepTimes = Literal["host clock", "device events", "windows"]
"""How the time of a single step is known: `host clock` where operations are done when they return, `device events`
where the device records moments in its queue, `windows` where only several steps up to a synchronisation are known."""


class Device:
    """A kind of device that PyTorch runs on. The defaults suit a device that computes before it returns."""

    name: ClassVar[str]
    """Its type in PyTorch, and its name for --device."""
    backend: ClassVar[str | None]
    """Backend of torch.distributed; None: it has no collectives, and gradients are averaged in host memory."""
    connects_early: ClassVar[bool] = False
    """torch.distributed can be told the process's device, and then connects before the first collective."""
    shared: ClassVar[bool] = False
    """Several processes may use one device."""
    step_times: ClassVar[StepTimes] = "host clock"
    inference_mode: ClassVar[bool] = True
    """torch.inference_mode works here; otherwise torch.no_grad is used."""
    fused_optimizer: ClassVar[bool] = False
    """torch.optim's fused kernels run here."""
    pins_memory: ClassVar[bool] = False
    """Copies from page-locked memory overlap with computation."""
    bucket_mb: ClassVar[int] = 25
    """Size of a bucket of gradients where machine.bucket_mb is omitted; 25 is PyTorch's own."""
    exchange: ClassVar[Literal["buckets", "after backward"]] = "buckets"
    """When gradients are all-reduced: in buckets during the backward pass, or in one piece after it, where buckets
    would cut the program of a lazy device. Without collectives always after it, in host memory."""
    static_shapes: ClassVar[bool] = False
    """A new batch size costs a compilation, so short batches are padded and masked."""
    compile_backend: ClassVar[str] = "inductor"
    compile_dynamic: ClassVar[bool | None] = None
    """`dynamic` of torch.compile; None: PyTorch decides."""
    allocator: str = "keep"
    """machine.allocator, set before `prepare`; devices with memory of their own ignore it."""
    channels_last: ClassVar[bool] = True
    """Networks run in the channels-last memory layout; otherwise machine.channels_last has no effect here."""
    detections_on_host: ClassVar[bool] = False
    """Detections are chosen on the host: here each shape that depends on data costs a compilation or a round trip."""
    folds_batch_norm: ClassVar[bool] = False
    """A network whose weights are final runs faster here with batch norms folded into convolutions."""
    native_sync_bn: ClassVar[bool] = False
    """PyTorch's own SyncBatchNorm runs here."""

    @classmethod
    def available(cls) -> bool:
        raise NotImplementedError

    def count(self) -> int:
        """Number of devices of this kind that this process can see."""
        return 1

    def torch_device(self, local_rank: int) -> "torch.device":
        """The torch device of a process."""
        import torch

        # Modulo: a launcher may let each process see one device, which is then number 0 in all of them.
        return torch.device(self.name, local_rank % max(1, self.count()))

    def identity(self) -> list[DeviceInfo]:
        """All devices of this kind."""
        raise NotImplementedError

    def own_device(self, local_rank: int) -> DeviceInfo:
        """The device that a process computes on; without a UUID where the process cannot know which one it is."""
        index, devices = self.torch_device(local_rank).index or 0, self.identity()
        return devices[index] if index < len(devices) else DeviceInfo(index=index, name=self.name)

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        """Environment variables that limit a process to this one device, among those visible here; empty: no way."""
        return {}

    def answer(self, precision: str, mode: str) -> Answer:
        """Whether this precision and mode run here together."""
        raise NotImplementedError

    def deterministic(self) -> Answer:
        """Whether a run can be repeated bit for bit."""
        return YES

    def refuse(self, precision: str, mode: str, *, allow_slow: bool) -> str:
        """Say why this combination cannot run here and what to use instead; empty if it can."""
        answer = self.answer(precision, mode)
        if answer.verdict == "yes" or (answer.verdict == "slow" and allow_slow):
            return ""
        insist = f", or {use('machine.allow_slow', True)} to run it anyway" if answer.verdict == "slow" else ""
        return f"{answer.why}: use {answer.instead}{insist}."

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        """Make the process's settings for this device; called once, before tensors are created."""
        import torch

        if deterministic:
            torch.use_deterministic_algorithms(True)
            # Vernier reads no memory that nothing has written, and to fill all of it took 2 % of a step of ResNet-18.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def prepare_collectives(self, *, rank: int, local_rank: int, world: int, deterministic: bool = False) -> None:
        """Register the backend with torch.distributed; called before the process group is created and before `prepare`.

        `local_rank` is the number of this process on its host, `world` the number of processes on all hosts.
        `deterministic`: sums must be made in the same order in every run.
        """

    def without_gradients(self) -> AbstractContextManager[Any]:
        """The context of inference."""
        import torch

        return torch.inference_mode() if self.inference_mode else torch.no_grad()

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """The context in which the network computes in this precision. Weights, batch norm and loss stay fp32."""
        import torch

        # fp32 and TF32 need no autocast: TF32 is a setting of the matrix products.
        if precision not in DTYPES:
            return nullcontext()
        return torch.autocast(self.name, dtype=getattr(torch, DTYPES[precision]))

    def pinned(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """The tensor in page-locked memory where `pins_memory`; otherwise the tensor itself."""
        return tensor.pin_memory() if self.pins_memory else tensor

    def upload(self, tensor: "torch.Tensor", target: "torch.device") -> "torch.Tensor":
        """Copy to the device. Only from page-locked memory the copy may be pending on return: see `copied_event`."""
        return tensor.to(target)

    def copied_event(self) -> Any:
        """An event after which the memory of all uploads so far may be overwritten, for `wait_for` and `is_done`."""
        return self.record_event()

    def fuses_optimizer(self, precision: str) -> bool:
        """Whether to update in one kernel; not with loss scaling, where it would go on in steps that are skipped."""
        return self.fused_optimizer and precision != "fp16"

    def synchronize(self) -> None:
        """Wait until all queued work is done, so that a clock can be read."""

    def record_event(self) -> Any:
        """Record this moment of the device's queue without waiting for it; see `elapsed_s`.

        Where `step_times` is `windows` it is the moment on the host's clock.
        """
        return now_s()

    def elapsed_s(self, start: Any, end: Any) -> float:
        """Seconds on the device between two recorded events; call it after `synchronize`."""
        return float(end - start)

    def wait_for(self, event: Any) -> None:
        """Wait until the device has done what was queued before a recorded event; without events, everything."""
        self.synchronize()

    def is_done(self, event: Any) -> bool:
        """Whether the device has done what was queued before a recorded event, without waiting; False: or unknown."""
        return self.step_times == "host clock"

    def end_step(self) -> None:
        """Run the collected operations, on devices that collect them.

        Called after each step and each micro-batch, and where a step must not begin with what came before it: after
        set-up, after a checkpoint was loaded, before and after an evaluation.
        """

    def optimizer_step(self, optimizer: "torch.optim.Optimizer") -> None:
        """Update the weights; not with loss scaling, which decides on the device whether to update."""
        optimizer.step()

    def compilations(self) -> Compilation:
        """The graphs and seconds of what was compiled in this process so far: a step in which they grow is not steady.

        Default: what torch.compile counts.
        """
        if "torch._dynamo" not in sys.modules:  # importing it takes longer than many a run
            return Compilation()
        from vernier.torch_private import compiler_counters

        graphs, seconds = compiler_counters()
        return Compilation(graphs=graphs, seconds=seconds)

    def numa_node(self, local_rank: int) -> int | None:
        """The NUMA node of the host that a process's device is attached to; None: unknown, or the device is none."""
        return None

    def sensors(self, uuids: Sequence[str | None]) -> Any:
        """Readers of its power, clocks and temperatures: an object as `lab.telemetry.sensors.Sensors`.

        None: those that Vernier knows for this kind of device, if any.
        """
        return None

    def memory(self) -> Memory | None:
        """The memory of this process; None if the device does not report it."""
        return None

    def reset_peak_memory(self) -> None:
        """Start a new measurement of the peak."""

    def return_freed_memory(self) -> None:
        """From now on give the memory of freed tensors back at once, which takes time, where it is kept otherwise."""

    def free_memory(self, local_rank: int) -> int | None:
        """Bytes that a process can still take of its device's own memory; None: it has none, or does not report it."""
        return None

    @classmethod
    def is_lost(cls, error: BaseException) -> bool:
        """Whether this error means a device that no longer responds; a message is then enough, without a traceback."""
        return False

    def for_inference(self, model: "torch.nn.Module") -> "torch.nn.Module":
        """The model with a faster forward pass, where the device has a way; the model itself stays as it is.

        Only for a model whose weights will not change or move: a recorded pass reads them where they are now.
        """
        return model


def visible_entry(variable: str, index: int, *, sort: bool = False) -> str:
    """The entry of this process's own list of visible devices that stands for a device it sees under this index.

    A child process reads indices as those of the machine, not of its parent. `sort`: devices are numbered in the
    machine's order, whatever the order of the list.
    """
    entries = [entry.strip() for entry in os.environ.get(variable, "").split(",") if entry.strip()]
    if sort:
        # By parts as numbers: tile 0.10 comes after 0.9.
        entries.sort(key=lambda entry: [int(part) if part.isdigit() else 0 for part in entry.split(".")])
    return entries[index] if index < len(entries) else str(index)


class Accelerator(Device):
    """A device whose library has the functions of torch.cuda, by the same names."""

    native_sync_bn = True
    step_times = "device events"

    @classmethod
    def library(cls) -> Any:
        """The module of these functions: torch.cuda, torch.xpu, or the vendor's own."""
        import torch

        return getattr(torch, cls.name)

    @classmethod
    def available(cls) -> bool:
        return bool(cls.library().is_available())

    def count(self) -> int:
        return int(self.library().device_count())

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        self.library().set_device(self.torch_device(local_rank).index)
        super().prepare(precision, deterministic=deterministic)

    def upload(self, tensor: "torch.Tensor", target: "torch.device") -> "torch.Tensor":
        return tensor.to(target, non_blocking=self.pins_memory)

    def synchronize(self) -> None:
        self.library().synchronize()

    def record_event(self) -> Any:
        event = self.library().Event(enable_timing=True)
        event.record()
        return event

    def elapsed_s(self, start: Any, end: Any) -> float:
        # Libraries give milliseconds.
        return float(start.elapsed_time(end)) / 1000

    def wait_for(self, event: Any) -> None:
        event.synchronize()

    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    def memory(self) -> Memory | None:
        library = self.library()
        reserved = getattr(library, "memory_reserved", None)  # Gaudi's library has no such function
        return Memory(
            allocated_bytes=library.memory_allocated(),
            peak_bytes=library.max_memory_allocated(),
            reserved_bytes=reserved() if reserved else None,
        )

    def reset_peak_memory(self) -> None:
        self.library().reset_peak_memory_stats()

    def free_memory(self, local_rank: int) -> int | None:
        ask = getattr(self.library(), "mem_get_info", None)
        return None if ask is None else int(ask(self.torch_device(local_rank))[0])


def stated_uuid(uuid: object) -> str | None:
    """The text of a UUID; None where a driver has none: it then gives None, the text "None", or zeros only."""
    text = "" if uuid is None else str(uuid).strip()
    return text if text.lower() not in ("", "none", "n/a") and text.strip("0-") else None
