"""Command lines of the documents that Vernier succeeds, read by their own rules: what they ask for, as numbers.

Nothing here knows Vernier. Defaults are those of the scripts: NVIDIA's RN50v1.5 of May 2019, Habana's ResNet 0.13.0,
SSD_ResNet34 and ResNeXt 1.5.0.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

COCO_IMAGES = 117_266


@dataclass(frozen=True, kw_only=True)
class Original:
    """What one of their command lines asks for. None: it does not say, or has no such thing."""

    task: Literal["train", "bench train", "bench infer"] = "train"
    devices: int
    device_batch: int
    accumulation: int = 1
    precision: str
    epochs: float | None = None
    steps: int | None = None
    eval_steps: int | None = None
    lr: float | None = None
    first_lr: float | None = None
    """Rate in the first epoch, where the line trains no longer."""
    weight_decay: float | None = None
    loss_scale: float | None = None
    mode: str | None = None
    profile: tuple[int, int] | None = None
    steps_per_epoch: int | None = None

    @property
    def global_batch(self) -> int:
        return self.devices * self.device_batch * self.accumulation


def read(line: str) -> Original | None:
    """What a command line asks for; None for one that trains and measures nothing."""
    if re.search(r"--help|--helpfull|-h\b|--mode eval|--resume", line):
        return None
    for name, reader in _READERS.items():
        if re.search(name, line):
            return reader(line)
    return None


def _number(line: str, *flags: str, default: float) -> float:
    """The number behind one of the flags; a placeholder such as <epoch> stands for the default."""
    match = re.search(rf"(?:^|\s)(?:{'|'.join(flags)})[ =](\S+)", line)
    return default if match is None or match[1].startswith("<") else float(match[1])


def _word(line: str, *flags: str, default: str) -> str:
    match = re.search(rf"(?:^|\s)(?:{'|'.join(flags)})[ =](\S+)", line)
    return default if match is None or match[1].startswith("<") else match[1]


def _nvidia_script(line: str) -> Original:
    """DGX1 has 8 GPUs and DGX2 16; fp32 takes half the batch per GPU twice; the rate is 0.256 per 256 images."""
    match = re.search(r"DGX(\d)_RN50_FP(\d+)_(\d+)E\.sh", line)
    assert match is not None
    devices, fp32 = {"1": 8, "2": 16}[match[1]], match[2] == "32"
    return Original(
        devices=devices,
        device_batch=128 if fp32 else 256,
        accumulation=2 if fp32 else 1,
        precision="fp32" if fp32 else "fp16",
        epochs=float(match[3]),
        lr=devices * 256 / 1000,
        weight_decay=1 / 32768,
    )


def _nvidia_dali(line: str) -> Original:
    """ "For DGX2 configurations we use NVIDIA DALI"."""
    return Original(devices=16, device_batch=256, precision="fp16", epochs=90, lr=4.096)


def _nvidia_main(line: str) -> Original:
    """Defaults of main.py: -b 256 per GPU, lr 0.1 whatever the batch, wd 1e-4, 90 epochs. --prof ends a run."""
    measured = "--prof" in line
    half = "--fp16" in line
    return Original(
        task="bench infer" if "--evaluate" in line else "bench train" if measured else "train",
        devices=int(_number(line, "--nproc_per_node", default=1)),
        device_batch=int(_number(line, "-b", default=256)),
        precision="fp16" if half else "fp32",
        epochs=None if measured else _number(line, "--epochs", default=90),
        steps=int(_number(line, "--prof", default=0)) or None,
        lr=None if measured else 0.1,
        weight_decay=None if measured else 1e-4,
        loss_scale=_number(line, "--static-loss-scale", default=0) or None,
    )


def _habana_pytorch(line: str) -> Original:
    """Rate 0.1 for any batch; demo_resnet: one epoch, graph mode; demo_resnet_dist: eight cards."""
    graph = "--run-trace-mode" in line or _word(line, "--mode", default="graph") == "graph"
    return Original(
        devices=8 if "demo_resnet_dist" in line else 1,
        device_batch=int(_number(line, "-b", "--batch-size", default=128)),
        precision=_word(line, "--data-type", default="fp32"),
        epochs=_number(line, "--epochs", default=1),
        steps=int(_number(line, "--num-train-steps", default=0)) or None,
        eval_steps=int(_number(line, "--num-eval-steps", default=0)) or None,
        first_lr=0.1,
        mode="compile" if graph else "eager",
    )


def _habana_ssd(line: str) -> Original:
    """Batch 128 per card, 50 epochs, bf16, 3e-3 per 32 images; steps per epoch rounded up."""
    devices = int(_number(line, "-np", "--np", default=1))
    batch = int(_number(line, "-b", "--batch_size", default=128))
    first, _, last = _word(line, "--profile", default="").partition(",")
    return Original(
        devices=devices,
        device_batch=batch,
        precision=_word(line, "-d", "--dtype", default="bf16"),
        epochs=_number(line, "-e", "--epochs", default=50),
        steps=int(_number(line, "--steps", default=0)) or None,
        lr=3e-3 * devices * batch / 32,
        weight_decay=5e-4,
        profile=(int(first), int(last)) if last else None,
        steps_per_epoch=math.ceil(COCO_IMAGES / (devices * batch)),
    )


def _habana_resnext(line: str) -> Original:
    """0.256 per 256 images, decay 6.103515625e-05."""
    devices = int(_number(line, "-np", default=1))
    batch = int(_number(line, "-bs", default=32))
    first, _, last = _word(line, "--profile_steps", default="").partition(",")
    return Original(
        devices=devices,
        device_batch=batch,
        precision=_word(line, "-dt", default="fp32"),
        epochs=_number(line, "-te", default=10),
        steps=int(_number(line, "--max_train_steps", default=0)) or None,
        lr=0.256 * devices * batch / 256,
        weight_decay=_number(line, "--weight_decay", default=6.103515625e-05),
        profile=(int(first), int(last)) if last else None,
    )


_READERS = {
    r"DGX\d_RN50": _nvidia_script,
    "dali-gpu": _nvidia_dali,
    r"main\.py --arch": _nvidia_main,
    r"resnet/train\.py|demo_resnet": _habana_pytorch,
    r"ssd\.py": _habana_ssd,
    r"imagenet_main\.py": _habana_resnext,
}
