"""Single 3 x 3 convolutions by Winograd's algorithm beside PyTorch's, in fp32 on the CPU.

Output, gradient of the inputs and gradient of the weights, for layers with as many inputs as outputs; PyTorch's and
Winograd's calls take turns. Prints medians in milliseconds and the ratio of the three together.

    python benchmarks/winograd_layers.py [--rounds 9]
"""

import argparse
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch
from torch import Tensor

from vernier.clock import now_s, utc_stamp
from vernier.devices.cpu import _keep_freed_memory
from vernier.kernels import winograd

LAYERS = [(16, 64, 56), (16, 128, 28), (16, 256, 14), (16, 512, 7), (8, 324, 38), (64, 32, 32), (128, 16, 32)]
"""Images, channels, size: of ResNet-50, of a head of SSD, and of networks for small images."""


def calls(count: int, channels: int, px: int) -> list[Callable[[], object]]:
    """PyTorch's three, then Winograd's."""

    def random(*shape: int) -> Tensor:
        return torch.randn(shape).contiguous(memory_format=torch.channels_last)

    images, gradient, weight = (
        random(count, channels, px, px),
        random(count, channels, px, px),
        random(channels, channels, 3, 3),
    )

    def backward(*wanted: bool) -> object:
        shape = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(gradient, images, weight, None, *shape, wanted)

    return [
        lambda: torch.conv2d(images, weight, padding=1),
        lambda: backward(True, False, False),
        lambda: backward(False, True, False),
        lambda: winograd.convolve(images, weight),
        lambda: winograd.input_gradient(gradient, weight),
        lambda: winograd.weight_gradient(gradient, images),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    _keep_freed_memory()
    winograd.check_kernels()
    print(f"{utc_stamp()}  {torch.get_num_threads()} threads, n = {rounds}")
    for layer in LAYERS:
        works = calls(*layer)
        times: list[list[float]] = [[] for _ in works]
        for number in range(rounds + 1):
            for work, seconds in zip(works, times, strict=True):
                began_s = now_s()
                work()
                if number:  # the first round warms up
                    seconds.append(now_s() - began_s)
        ms = [1e3 * statistics.median(seconds) for seconds in times]
        shown = " | ".join(", ".join(f"{value:.1f}" for value in part) for part in (ms[:3], ms[3:]))
        print(f"| {', '.join(map(str, layer))} | {shown} | {sum(ms[:3]) / sum(ms[3:]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
