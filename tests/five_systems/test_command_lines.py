"""Flags of the five systems: what to type instead reaches the setting that the flag is about, with its value."""

import shlex

import pytest

from tests.documented import DOCS, Shown
from tests.five_systems import Cases, by_system, check_values
from tests.integration.test_coming_from import resolved
from vernier.config import derive
from vernier.recipes import train_images

RESNET50: Cases = {
    "1": (
        "habana-resnet50-sgd-1 --device hpu --global-batch 128",
        {"machine.device": "hpu", "machine.precision": "fp32", "machine.mode": "eager", "recipe.global_batch": 128},
    ),
    "2": (
        "habana-resnet50-sgd-1 --device hpu --precision bf16",
        {"recipe.global_batch": 256, "machine.precision": "bf16", "machine.mode": "eager"},
    ),
    "3": ("habana-resnet50-sgd-1 --device hpu --precision bf16 --mode graph", {"machine.mode": "compile"}),
    "4": ("habana-resnet50-sgd-1 --device hpu --mode graph --global-batch 128", {"machine.mode": "compile"}),
    "7": ("habana-resnet50-sgd-1 --set machine.eval_batch=32", {"machine.eval_batch": 32}),
    "8": ("habana-resnet50-sgd-8-1024 --procs 8", {"recipe.global_batch": 1024, "derived.process_batch": 128}),
    "9": (
        "habana-resnet50-sgd-8 --procs 8 --precision bf16",
        {"recipe.global_batch": 2048, "derived.process_batch": 256},
    ),
    "10": ("habana-resnet50-sgd-8 --procs 8", {"machine.procs": 8}),
    "25": ("habana-resnet50-sgd-1 --data /data/imagenet", {"recipe.data.source": "/data/imagenet"}),
    "26": ("--model resnet50", {"recipe.model.name": "resnet50", "recipe.model.width": None}),
    "27": ("habana-resnet50-sgd-1 --device hpu", {"machine.device": "hpu"}),
    "28": ("habana-resnet50-sgd-8 --procs 8 --set machine.process_batch=128", {"derived.process_batch": 128}),
    "29": ("habana-resnet50-sgd-1 --epochs 1", {"recipe.schedule.epochs": 1.0}),
    "32": ("habana-resnet50-sgd-1 --device hpu --mode compile", {"machine.mode": "compile"}),
    "33": ("habana-resnet50-sgd-1 --precision bf16", {"machine.precision": "bf16"}),
    "34": ("habana-resnet50-sgd-1 --max-steps 100", {"limits.max_steps": 100, "derived.stop_step": 100}),
    "35": ("habana-resnet50-sgd-1 --max-eval-steps 30", {"limits.max_eval_steps": 30}),
    "55": ("habana-resnet50-sgd-1 --set machine.eval_batch=1000", {"machine.eval_batch": 1000}),
}
SSD: Cases = {
    "7": ("habana-ssd-1 --precision bf16", {"machine.precision": "bf16"}),
    "10": ("habana-ssd-1 --set schedule.milestones=[44,55]", {"recipe.schedule.milestones": (44.0, 55.0)}),
    "16": ("habana-ssd-1 --set checkpoint.every_epochs=5", {"checkpoint.every_epochs": 5.0}),
    "17": ("habana-ssd-1 --set checkpoint.keep_last=20", {"checkpoint.keep_last": 20}),
    "21": (
        "habana-ssd-1 --max-steps 100 --set limits.log_every_steps=1 --set checkpoint.every_steps=50",
        {"limits.max_steps": 100, "limits.log_every_steps": 1, "checkpoint.every_steps": 50},
    ),
    "48": ("habana-ssd-1 --set machine.cache_share=0", {"machine.cache_share": 0.0}),
    "49": (
        "habana-ssd-1 --set schedule.epochs=64",
        {"recipe.schedule.epochs": 64.0, "recipe.schedule.milestones": (40.0, 50.0)},
    ),
    "50": ("habana-ssd-1 --global-batch 256", {"recipe.global_batch": 256, "derived.lr": 0.024}),
    "51": ("habana-ssd-1 --precision bf16", {"machine.precision": "bf16"}),
    "53": ("habana-ssd-1 --set limits.log_every_steps=10", {"limits.log_every_steps": 10}),
    "54": ("habana-ssd-1 --data /data/coco", {"recipe.data.source": "/data/coco"}),
    "61": ("habana-ssd-8 --set checkpoint.every_epochs=64", {"checkpoint.every_epochs": 64.0}),
    "66": ("habana-ssd-1 --max-steps 100", {"derived.stop_step": 100}),
    "74": ("habana-ssd-1 --set machine.max_cpus=4", {"machine.max_cpus": 4}),
    "75": ("habana-ssd-1 --workers 12 --set machine.threads=6", {"machine.workers": 12, "machine.threads": 6}),
    "76": ("habana-ssd-1 --device cpu", {"machine.device": "cpu"}),
    "77": ("habana-ssd-1 --set checkpoint.keep_last=20", {"checkpoint.keep_last": 20}),
}
RESNEXT: Cases = {
    "33": ("habana-tf-resnext101-90e --precision bf16", {"machine.precision": "bf16"}),
    "35": ("habana-tf-resnext101-90e --global-batch 256", {"recipe.global_batch": 256, "derived.lr": 0.256}),
    "36": ("habana-tf-resnext101-90e --epochs 30", {"recipe.schedule.epochs": 30.0}),
    "37": ("habana-tf-resnext101-90e --set eval.every_epochs=90", {"recipe.eval.every_epochs": 90.0}),
    "38": ("habana-tf-resnext101-90e --data /data/tf_records", {"recipe.data.source": "/data/tf_records"}),
    "39": ("habana-tf-resnext101-90e --data /data/imagenet", {"recipe.data.source": "/data/imagenet"}),
    "40": (
        "habana-tf-resnext101-90e --device hpu --precision bf16",
        {"recipe.global_batch": 128, "machine.precision": "bf16"},
    ),
    "41": (
        "habana-tf-resnext101-90e --device hpu --global-batch 256 --set machine.backend=gaudi-media",
        {"recipe.global_batch": 256, "machine.backend": "gaudi-media"},
    ),
    "42": (
        "habana-tf-resnext101-90e --procs 8 --global-batch 1024",
        {"derived.process_batch": 128, "derived.lr": 1.024},
    ),
    "43": (
        "habana-tf-resnext101-90e --procs 8 --global-batch 2048",
        {"derived.process_batch": 256, "derived.lr": 2.048},
    ),
    "44": ("habana-tf-resnext101-90e-64 --procs 64", {"recipe.global_batch": 8192, "derived.process_batch": 128}),
    "59": ("habana-tf-resnext101-90e --max-steps 10", {"derived.stop_step": 10}),
    "61": ("habana-tf-resnext101-90e --model resnet50", {"recipe.model.name": "resnet50"}),
    "62": (
        "habana-tf-resnext101-90e --set schedule.warmup_epochs=5 --set schedule.kind=cosine",
        {"recipe.schedule.warmup_epochs": 5.0, "recipe.schedule.kind": "cosine"},
    ),
    "63": (
        "habana-tf-resnext101-90e --set optim.weight_decay=7.93e-5 --set optim.momentum=0.9",
        {"recipe.optim.weight_decay": 7.93e-5, "recipe.optim.momentum": 0.9},
    ),
    "64": ("habana-tf-resnext101-90e --set machine.max_cpus=8", {"machine.max_cpus": 8}),
    "70": ("habana-tf-resnext101-90e --workers 10", {"machine.workers": 10}),
    "75": ("habana-tf-resnext101-90e --set checkpoint.every_steps=500", {"checkpoint.every_steps": 500}),
    "81": ("habana-tf-resnext101-90e --set limits.log_every_steps=100", {"limits.log_every_steps": 100}),
    "84": (
        "habana-tf-resnext101-90e --weights w.pth --freeze backbone --reset-head",
        {"recipe.model.freeze": ("backbone",), "recipe.model.reset_head": True},
    ),
    "85": ("habana-tf-resnext101-90e --set eval.target_top1=75.9", {"recipe.eval.target_top1": 75.9}),
    "86": ("habana-tf-resnext101-90e --data synthetic", {"recipe.data.source": "synthetic"}),
}
DGX: Cases = {
    f"{29 + 6 * large + 3 * full + i}": (
        f"nvidia-resnet50-{epochs}e{'-4096' * large} --device cuda --procs {16 if large else 8} "
        + ("--set machine.process_batch=128" if full else "--precision fp16"),
        {
            "recipe.schedule.epochs": float(epochs),
            "recipe.global_batch": 4096 if large else 2048,
            "derived.process_batch": 128 if full else 256,
            "derived.accumulation": 2 if full else 1,
            "recipe.augment.mixup": 0.2 if epochs == 250 else 0.0,
        },
    )
    for large in (False, True)
    for full in (False, True)
    for i, epochs in enumerate((50, 90, 250))
}
PLAIN = "--set optim.momentum=0.9 --set optim.weight_decay=1e-4 --set schedule.kind=step --set schedule.warmup_epochs=0"
NVIDIA: Cases = {
    **DGX,
    "41": ("nvidia-resnet50-90e --data /data/imagenet", {"recipe.data.source": "/data/imagenet"}),
    "42": (
        f"nvidia-resnet50-90e --device cuda --global-batch 256 --lr 0.1 {PLAIN}",
        {
            "derived.lr": 0.1,
            "recipe.optim.momentum": 0.9,
            "recipe.schedule.kind": "step",
            "recipe.schedule.milestones": (30.0, 60.0, 80.0),
            "recipe.loss.label_smoothing": 0.1,
        },
    ),
    "43": (
        "nvidia-resnet50-90e --precision fp16 --set machine.loss_scaling=static --set machine.loss_scale=256",
        {"machine.precision": "fp16", "machine.loss_scaling": "static", "machine.loss_scale": 256.0},
    ),
    "44": (
        f"nvidia-resnet50-90e --procs 8 --lr 0.1 {PLAIN}",
        {"derived.lr": 0.1, "derived.process_batch": 256, "recipe.schedule.kind": "step"},
    ),
    "45": (
        f"nvidia-resnet50-90e --procs 8 --lr 0.1 {PLAIN} --precision fp16 --set machine.loss_scaling=static",
        {"derived.lr": 0.1, "machine.loss_scaling": "static"},
    ),
    "46": ("nvidia-resnet50-90e --model resnet152", {"recipe.model.name": "resnet152"}),
    "47": ("nvidia-resnet50-90e --set model.init=fan-out", {"recipe.model.init": "fan-out"}),
    "48": ("nvidia-resnet50-90e --set loss.label_smoothing=0.2", {"recipe.loss.label_smoothing": 0.2}),
    "50": (
        "nvidia-resnet50-90e --precision fp16 --set machine.loss_scaling=static --set machine.loss_scale=128",
        {"machine.loss_scaling": "static", "machine.loss_scale": 128.0},
    ),
    "51": ("nvidia-resnet50-90e --procs 8", {"machine.procs": 8}),
    "57": ("nvidia-resnet50-90e --set machine.eval_batch=512", {"machine.eval_batch": 512}),
    "62": ("nvidia-resnet50-90e --max-steps 100", {"derived.stop_step": 100}),
    "64": ("nvidia-resnet50-90e --train-only", {"recipe.eval.every_epochs": 0.0}),
}
STUDY: Cases = {
    "2": ("study-resnet50 --max-steps 500 --train-only", {"derived.stop_step": 500}),
    "3": ("study-resnet50 --procs 4", {"derived.world": 4, "derived.process_batch": 64}),
    "7": ("study-resnet50 --procs 2", {"machine.procs": 2}),
    "9": ("study-resnet50 --global-batch 128", {"recipe.global_batch": 128}),
}
CASES = by_system(
    {
        "habana-resnet50": RESNET50,
        "habana-ssd": SSD,
        "habana-resnext101": RESNEXT,
        "nvidia-resnet50": NVIDIA,
        "sc22-study": STUDY,
    }
)


@pytest.mark.parametrize("key", CASES)
def test_flag_sets_what_theirs_did(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line, values = CASES[key]
    config = resolved(Shown(DOCS / "none.md", 1, ("train", *shlex.split(line))))
    derived = derive(config, train_samples=train_images(config.recipe) or 12_800)
    check_values(config, derived, values)
