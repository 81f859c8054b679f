"""rgpu as a device of Vernier: a queue, memory and a generator of its own, in a server process (`rgpu-opserver`).

rgpu-opserver --device cpu --port 9720 &
RGPU_OPSERVER=127.0.0.1:9720 vernier train shapes-quick --device rgpu
"""

import functools
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from vernier.devices.base import YES, Answer, Device
from vernier.records.environment import DeviceInfo

if TYPE_CHECKING:
    import torch


class Rgpu(Device):
    name = "rgpu"
    backend = None  # no collectives: gradients are averaged in host memory
    shared = True  # every process has a session of its own on the server
    step_times = "windows"  # it records no events
    inference_mode = False  # its `.item()` needs torch.no_grad
    detections_on_host = True  # every shape that depends on data is a round trip
    compile_backend = "rgpu_graphs"
    compile_dynamic = False
    channels_last = False  # it takes the output of a convolution for contiguous, whatever the server has

    @classmethod
    def available(cls) -> bool:
        return bool(os.environ.get("RGPU_OPSERVER")) and importlib.util.find_spec("rgpu") is not None

    def torch_device(self, local_rank: int) -> "torch.device":
        library()
        import torch

        return torch.device("rgpu", 0)

    def identity(self) -> list[DeviceInfo]:
        return [DeviceInfo(index=0, name="rgpu", uuid=f"rgpu-{os.environ.get('RGPU_OPSERVER')}")]

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32":
            return Answer("refused", "precision tf32 exists on CUDA devices only", "--precision fp32")
        if mode == "trace":
            return Answer("refused", "torch.jit.trace cannot record operations of rgpu", "--mode compile")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        library()
        super().prepare(precision, deterministic=deterministic)

    def upload(self, tensor: "torch.Tensor", target: "torch.device") -> "torch.Tensor":
        return tensor.contiguous().to(target)

    @classmethod
    def is_lost(cls, error: BaseException) -> bool:
        session = sys.modules.get("rgpu.session")
        return session is not None and isinstance(error, ConnectionError | session.SessionLost)

    def synchronize(self) -> None:
        library().synchronize()


@functools.cache
def library() -> Any:
    """torch.rgpu; importing rgpu registers it with PyTorch. Compiled graphs are run by the server as they are sent."""
    import torch
    from rgpu.compile import compile_backend

    torch._dynamo.register_backend(name="rgpu_graphs")(compile_backend(compiler="eager"))  # inductor takes minutes
    return torch.rgpu  # type: ignore[attr-defined]
