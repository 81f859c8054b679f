"""Compares the paddings of `model.padding` with TensorFlow's own layers, on the same weights and images.

TensorFlow and Vernier need not be in one environment. First, where Vernier is installed, then, where TensorFlow is:

    python benchmarks/tensorflow_padding.py write FILE.npz
    python benchmarks/tensorflow_padding.py check FILE.npz

Weights are random, and statistics of batch norms too; images are random pixels. The result is in
docs/results/checks.md.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, SIDE = 4, 224
MODELS = {"resnet50-v1": "tf", "resnext50-32x4d": "tf", "resnet34": "tf-fixed"}
EPSILON = 1e-5


def write(file: Path) -> None:
    """Outputs of Vernier's models with both paddings, and all that TensorFlow needs to compute them."""
    import torch

    from vernier import models

    arrays = {"images": np.random.default_rng(0).standard_normal((IMAGES, 3, SIDE, SIDE)).astype(np.float32)}
    for name, padding in MODELS.items():
        torch.manual_seed(0)
        model = models.build(name, num_classes=1000).eval()
        for key, value in model.state_dict().items():
            if key.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif key.endswith("running_var"):
                value.uniform_(0.5, 1.5)
        arrays |= {f"{name}/{key}": value.numpy() for key, value in model.state_dict().items()}
        for each in ("torch", padding):
            same = models.build(name, num_classes=1000, padding=each).eval()
            same.load_state_dict(model.state_dict())
            with torch.inference_mode():
                arrays[f"{name}/outputs/{each}"] = same(torch.from_numpy(arrays["images"])).numpy()
    np.savez(file, **arrays)


def _tensorflow_outputs(arrays: Any, name: str, padding: str) -> Any:
    """The logits of a residual network of TensorFlow's layers."""
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]

    def weight(key: str) -> Any:
        return arrays[f"{name}/{key}"]

    def conv(x: Any, key: str, stride: int = 1) -> Any:
        kernel = weight(f"{key}.weight").transpose(2, 3, 1, 0)
        if padding == "tf-fixed" and stride > 1:  # conv2d_fixed_padding of TensorFlow's model garden
            before = (len(kernel) - 1) // 2
            ends = [before, len(kernel) - 1 - before]
            return tf.nn.conv2d(tf.pad(x, [[0, 0], ends, ends, [0, 0]]), kernel, stride, "VALID")
        groups = x.shape[-1] // kernel.shape[2]
        parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1), strict=True)
        return tf.concat([tf.nn.conv2d(part, k, stride, "SAME") for part, k in parts], -1)

    def norm(x: Any, key: str) -> Any:
        mean, variance, beta, gamma = (weight(f"{key}.{p}") for p in ("running_mean", "running_var", "bias", "weight"))
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON)

    def block(x: Any, key: str, stride: int) -> Any:
        convolutions = [n for n in (1, 2, 3) if f"{name}/{key}.conv{n}.weight" in arrays]
        strided = 2 if len(convolutions) == 3 and not name.endswith("-v1") else 1
        out, identity = x, x
        for n in convolutions:
            out = norm(conv(out, f"{key}.conv{n}", stride if n == strided else 1), f"{key}.bn{n}")
            out = out if n == convolutions[-1] else tf.nn.relu(out)
        if f"{name}/{key}.downsample.0.weight" in arrays:
            identity = norm(conv(x, f"{key}.downsample.0", stride), f"{key}.downsample.1")
        return tf.nn.relu(out + identity)

    x = tf.nn.relu(norm(conv(arrays["images"].transpose(0, 2, 3, 1), "conv1", 2), "bn1"))
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for stage in range(1, 5):
        number = 0
        while f"{name}/layer{stage}.{number}.conv1.weight" in arrays:
            x = block(x, f"layer{stage}.{number}", 2 if stage > 1 and not number else 1)
            number += 1
    return (tf.reduce_mean(x, [1, 2]) @ weight("fc.weight").T + weight("fc.bias")).numpy()


def check(file: Path) -> None:
    """Print the largest differences of the outputs."""
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]

    arrays = np.load(file)
    print(f"TensorFlow {tf.__version__}, {IMAGES} images of {SIDE} pixels")
    for name, padding in MODELS.items():
        theirs = _tensorflow_outputs(arrays, name, padding)
        largest = {each: np.abs(theirs - arrays[f"{name}/outputs/{each}"]).max() for each in ("torch", padding)}
        differences = ", ".join(f"padding {each}: {value:.2g}" for each, value in largest.items())
        print(f"{name}: outputs up to {np.abs(theirs).max():.3g}; largest difference with {differences}")


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
