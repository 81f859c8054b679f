"""A reader whose batches live on a device, as those of `dali-gpu` and `gaudi-media` do; on any device of PyTorch."""

from typing import Any

import numpy as np
import torch

from vernier.data.loading.readers import TrainReader
from vernier.data.sources.base import Indices


class DeviceTrainReader(TrainReader):
    """The native reader's images, copied to `torch_device`."""

    torch_device: torch.device

    def fill(self, epoch: int, indices: Indices, out: Any) -> None:
        pixels = np.empty(tuple(out.shape), np.uint8)
        super().fill(epoch, indices, pixels)
        out.copy_(torch.from_numpy(pixels))
