"""The catalogue's networks once more, written from the papers as plain functions over a dictionary of tensors.

An independent opinion for the tests: nothing is imported from Vernier, no module holds state, batch norm is arithmetic.
He et al. 2015 (1512.03385) figure 3, table 1, section 4.2; Xie et al. 2017 (1611.05431) figure 3c; Hu et al. 2018
(1709.01507) figure 3; NVIDIA's squeeze width of 16. Jordan 2024, airbench94 (github.com/KellerJordan/cifar10-airbench).
Liu et al. 2022 (2201.03545), ConvNeXt-T.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]
Network = Callable[[Weights, Tensor, bool], Tensor]

EPS = 1e-5


def batch_norm(w: Weights, name: str, x: Tensor, training: bool, eps: float = EPS) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta, with the batch's own moments in training."""
    if training:
        mean = x.mean(dim=(0, 2, 3))
        var = ((x - mean[None, :, None, None]) ** 2).mean(dim=(0, 2, 3))
    else:
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
    scale = w[f"{name}.weight"] / (var + eps) ** 0.5
    shift = w[f"{name}.bias"] - mean * scale
    return x * scale[None, :, None, None] + shift[None, :, None, None]


def conv_norm(w: Weights, conv: str, norm: str, x: Tensor, training: bool, stride: int = 1, groups: int = 1) -> Tensor:
    kernel = w[f"{conv}.weight"]
    y = functional.conv2d(x, kernel, stride=stride, padding=(kernel.shape[-1] - 1) // 2, groups=groups)
    return batch_norm(w, norm, y, training)


def positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def projected(w: Weights, block: str, x: Tensor, stride: int, training: bool) -> Tensor:
    """Option B: a 1x1 convolution where the shape changes (which is where the weights have one)."""
    if f"{block}.downsample.0.weight" not in w:
        return x
    return conv_norm(w, f"{block}.downsample.0", f"{block}.downsample.1", x, training, stride)


def padded(x: Tensor, channels: int, stride: int) -> Tensor:
    """Option A: every second pixel, and zeros for the new channels, half in front and half behind."""
    if x.shape[1] == channels:
        return x
    y = torch.zeros(len(x), channels, -(-x.shape[2] // stride), -(-x.shape[3] // stride), dtype=x.dtype)
    first = (channels - x.shape[1]) // 2
    y[:, first : first + x.shape[1]] = x[:, :, ::stride, ::stride]
    return y


def basic(w: Weights, block: str, x: Tensor, stride: int, training: bool, option: str) -> Tensor:
    y = positive(conv_norm(w, f"{block}.conv1", f"{block}.bn1", x, training, stride))
    y = conv_norm(w, f"{block}.conv2", f"{block}.bn2", y, training)
    short = padded(x, y.shape[1], stride) if option == "A" else projected(w, block, x, stride, training)
    return positive(y + short)


def bottleneck(w: Weights, block: str, x: Tensor, strides: tuple[int, int], groups: int, training: bool) -> Tensor:
    y = positive(conv_norm(w, f"{block}.conv1", f"{block}.bn1", x, training, strides[0]))
    y = positive(conv_norm(w, f"{block}.conv2", f"{block}.bn2", y, training, strides[1], groups))
    y = conv_norm(w, f"{block}.conv3", f"{block}.bn3", y, training)
    if f"{block}.se.fc1.weight" in w:
        y = y * excitation(w, block, y)
    return positive(y + projected(w, block, x, strides[0] * strides[1], training))


def excitation(w: Weights, block: str, y: Tensor) -> Tensor:
    means = y.flatten(2).sum(2) / (y.shape[2] * y.shape[3])
    hidden = positive(means @ w[f"{block}.se.fc1.weight"].T + w[f"{block}.se.fc1.bias"])
    gate = hidden @ w[f"{block}.se.fc2.weight"].T + w[f"{block}.se.fc2.bias"]
    return (1 / (1 + torch.exp(-gate)))[:, :, None, None]


def classify(w: Weights, x: Tensor) -> Tensor:
    return x.flatten(2).mean(2) @ w["fc.weight"].T + w["fc.bias"]


def large_stem(w: Weights, x: Tensor, training: bool) -> Tensor:
    y = positive(conv_norm(w, "conv1", "bn1", x, training, stride=2))
    return functional.max_pool2d(y, 3, 2, 1)


def imagenet_basic(blocks: tuple[int, ...]) -> Network:
    def run(w: Weights, x: Tensor, training: bool) -> Tensor:
        x = large_stem(w, x, training)
        for stage, count in enumerate(blocks, start=1):
            for i in range(count):
                x = basic(w, f"layer{stage}.{i}", x, 2 if stage > 1 and i == 0 else 1, training, "B")
        return classify(w, x)

    return run


def imagenet_bottleneck(blocks: tuple[int, ...], *, v1: bool = False, groups: int = 1) -> Network:
    def run(w: Weights, x: Tensor, training: bool) -> Tensor:
        x = large_stem(w, x, training)
        for stage, count in enumerate(blocks, start=1):
            for i in range(count):
                s = 2 if stage > 1 and i == 0 else 1
                x = bottleneck(w, f"layer{stage}.{i}", x, (s, 1) if v1 else (1, s), groups, training)
        return classify(w, x)

    return run


def small_images(blocks_per_stage: int, option: str) -> Network:
    def run(w: Weights, x: Tensor, training: bool) -> Tensor:
        x = positive(conv_norm(w, "conv1", "bn1", x, training))
        for stage in (1, 2, 3):
            for i in range(blocks_per_stage):
                x = basic(w, f"layer{stage}.{i}", x, 2 if stage > 1 and i == 0 else 1, training, option)
        return classify(w, x)

    return run


def bell(x: Tensor) -> Tensor:
    """GELU: x times the probability that a standard normal number is below it."""
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def airbench(w: Weights, x: Tensor, training: bool) -> Tensor:
    x = bell(functional.conv2d(x, w["conv1.weight"], w["conv1.bias"]))
    for stage in (1, 2, 3):
        block = f"layer{stage}.0"
        y = functional.max_pool2d(functional.conv2d(x, w[f"{block}.conv1.weight"], padding=1), 2)
        y = bell(batch_norm(w, f"{block}.bn1", y, training, eps=1e-12))
        y = functional.conv2d(y, w[f"{block}.conv2.weight"], padding=1)
        x = bell(batch_norm(w, f"{block}.bn2", y, training, eps=1e-12))
    return x.amax(dim=(2, 3)) @ w["fc.weight"].T


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    """Over the channels, which are the second axis."""
    centred = x - x.mean(dim=1, keepdim=True)
    scaled = centred / ((centred**2).mean(dim=1, keepdim=True) + 1e-6) ** 0.5
    return scaled * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]


def per_pixel(w: Weights, name: str, x: Tensor) -> Tensor:
    return torch.einsum("nchw,oc->nohw", x, w[f"{name}.weight"]) + w[f"{name}.bias"][:, None, None]


def convnext(w: Weights, x: Tensor, training: bool) -> Tensor:
    """Liu et al. 2022, figure 4, table 9, appendix A.1."""
    x = layer_norm(w, "features.0.1", functional.conv2d(x, w["features.0.0.weight"], w["features.0.0.bias"], stride=4))
    for stage, blocks in enumerate((3, 3, 9, 3)):
        if stage:
            down = f"features.{2 * stage}"
            x = functional.conv2d(layer_norm(w, f"{down}.0", x), w[f"{down}.1.weight"], w[f"{down}.1.bias"], stride=2)
        for i in range(blocks):
            block = f"features.{2 * stage + 1}.{i}"
            y = functional.conv2d(
                x, w[f"{block}.block.0.weight"], w[f"{block}.block.0.bias"], padding=3, groups=x.shape[1]
            )
            y = bell(per_pixel(w, f"{block}.block.3", layer_norm(w, f"{block}.block.2", y)))
            x = x + w[f"{block}.layer_scale"] * per_pixel(w, f"{block}.block.5", y)
    pooled = layer_norm(w, "classifier.0", x.mean(dim=(2, 3), keepdim=True)).flatten(1)
    return pooled @ w["classifier.2.weight"].T + w["classifier.2.bias"]


NETWORKS: dict[str, Network] = {
    "convnext-tiny": convnext,
    "airbench94": airbench,
    "resnet18": imagenet_basic((2, 2, 2, 2)),
    "resnet34": imagenet_basic((3, 4, 6, 3)),
    "resnet50": imagenet_bottleneck((3, 4, 6, 3)),
    "resnet101": imagenet_bottleneck((3, 4, 23, 3)),
    "resnet152": imagenet_bottleneck((3, 8, 36, 3)),
    "resnet18-v1": imagenet_basic((2, 2, 2, 2)),
    "resnet34-v1": imagenet_basic((3, 4, 6, 3)),
    "resnet50-v1": imagenet_bottleneck((3, 4, 6, 3), v1=True),
    "resnet101-v1": imagenet_bottleneck((3, 4, 23, 3), v1=True),
    "resnet152-v1": imagenet_bottleneck((3, 8, 36, 3), v1=True),
    "resnext50-32x4d": imagenet_bottleneck((3, 4, 6, 3), groups=32),
    "resnext101-32x4d": imagenet_bottleneck((3, 4, 23, 3), groups=32),
    "resnext101-32x8d": imagenet_bottleneck((3, 4, 23, 3), groups=32),
    "resnext101-64x4d": imagenet_bottleneck((3, 4, 23, 3), groups=64),
    "se-resnext101-32x4d": imagenet_bottleneck((3, 4, 23, 3), groups=32),
    "resnet20-cifar": small_images(3, "A"),
    "resnet32-cifar": small_images(5, "A"),
    "resnet44-cifar": small_images(7, "A"),
    "resnet56-cifar": small_images(9, "A"),
    "resnet110-cifar": small_images(18, "A"),
    "resnet8-small": small_images(1, "B"),
    "resnet14-small": small_images(2, "B"),
    "resnet20-small": small_images(3, "B"),
}
