"""From uint8 images to the network's float input, on the device: the upload of uint8 is a quarter of the bytes."""

import torch

from vernier.config import Data

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def describe_normalisation(data: Data) -> str:
    """Returns the mean and standard deviation as text."""
    if (tuple(data.mean), tuple(data.std)) == (IMAGENET_MEAN, IMAGENET_STD):
        return "ImageNet mean and std"
    mean, std = (" ".join(f"{value:.4g}" for value in values) for values in (data.mean, data.std))
    return f"mean {mean}, std {std}"


class Normalizer:
    """(x / 255 - mean) / std per channel, on whatever device the images are."""

    def __init__(self, data: Data, device: torch.device) -> None:
        mean = torch.tensor(data.mean, device=device).view(1, -1, 1, 1)
        std = torch.tensor(data.std, device=device).view(1, -1, 1, 1)
        self._scale, self._shift = 1 / (255 * std), -mean / std

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.float().mul_(self._scale).add_(self._shift)
