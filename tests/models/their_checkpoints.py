"""Training checkpoints as the scripts of NVIDIA (RN50v1.5, 19.05) and Habana (0.13.0) write them, for small networks.

Keys, names, groups of parameters and the pickled loss scaler are those of main.py, training.py, train.py and apex's
fp16_utils; the momentum comes from real steps of torch.optim.SGD.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

Named = dict[str, torch.Tensor]
LOSS_SCALER = "apex.fp16_utils.loss_scaler"


@contextmanager
def apex() -> Iterator[type]:
    """apex's LossScaler, while a file is written: a class with one attribute. Afterwards there is no apex."""
    names = ["apex", "apex.fp16_utils", LOSS_SCALER]
    modules = {name: ModuleType(name) for name in names}
    scaler = type("LossScaler", (), {"__module__": LOSS_SCALER})
    modules[LOSS_SCALER].LossScaler = scaler  # type: ignore[attr-defined]
    sys.modules.update(modules)
    try:
        yield scaler
    finally:
        for name in names:
            del sys.modules[name]


def train_some(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    """Give every parameter a momentum of its own."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        optimizer.step()


def momentum_by_name(named: list[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer) -> Named:
    return {name: optimizer.state[p]["momentum_buffer"].clone() for name, p in named}


def nvidia_groups(named: list[tuple[str, Any]], weight_decay: float = 1 / 32768) -> list[dict[str, Any]]:
    """`bn_weight_decay=False`: parameters with `bn` in their name, then the others."""
    return [
        {"params": [p for name, p in named if "bn" in name], "weight_decay": 0},
        {"params": [p for name, p in named if "bn" not in name], "weight_decay": weight_decay},
    ]


def write_nvidia_fp32(model: nn.Module, path: Path, *, epoch: int, best: float) -> Named:
    """`main.py` without --fp16; its momentum by name."""
    named = list(model.named_parameters())
    optimizer = torch.optim.SGD(nvidia_groups(named), 0.256, momentum=0.875)
    train_some(model, optimizer)
    content = {
        "epoch": epoch,
        "arch": ("resnet50", "fanin"),
        "state_dict": {f"module.{name}": value for name, value in model.state_dict().items()},
        "best_prec1": best,
        "optimizer": optimizer.state_dict(),
    }
    torch.save(content, path, _use_new_zipfile_serialization=False)  # as PyTorch 1.1 did
    return momentum_by_name(named, optimizer)


def write_nvidia_fp16(
    model: nn.Module, path: Path, *, epoch: int, best: float, halves_first: bool
) -> tuple[Named, Named]:
    """`main.py --fp16 --static-loss-scale 128`: network_to_half and FP16_Optimizer; momentum and fp32 weights by name.

    apex of early 2019 put the masters of half-precision weights before the others of a group; later in their place.
    """
    norm = {id(p) for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()}
    named = [(name, nn.Parameter(p.detach().clone())) for name, p in model.named_parameters()]
    half = {name for name, p in model.named_parameters() if id(p) not in norm}
    groups = nvidia_groups(named)
    names = {id(p): name for name, p in named}
    for group in groups:
        if halves_first:
            group["params"] = sorted(group["params"], key=lambda p: names[id(p)] not in half)
    optimizer = torch.optim.SGD(groups, 0.256, momentum=0.875)
    train_some(model, optimizer)
    fp32 = {name: p.detach().clone() for name, p in named}
    state = {**model.state_dict(), **fp32}
    masters = [[p for p in group["params"] if names[id(p)] in half] for group in optimizer.param_groups]
    with apex() as scaler_class:
        scaler = scaler_class()
        scaler.cur_scale = 128.0
        content = {
            "epoch": epoch,
            "arch": ("resnet50", "fanin"),
            "state_dict": {f"module.1.{n}": v.half() if n in half else v for n, v in state.items()},
            "best_prec1": best,
            "optimizer": {
                "loss_scaler": scaler,
                "dynamic_loss_scale": False,
                "overflow": False,
                "first_closure_call_this_step": True,
                "optimizer_state_dict": optimizer.state_dict(),
                "fp32_from_fp16": masters,
            },
        }
        torch.save(content, path, _use_new_zipfile_serialization=False)
    return momentum_by_name(named, optimizer), fp32


def write_habana(model: nn.Module, path: Path, *, epoch: int) -> Named:
    """`train.py --save-checkpoint`: the number of the epoch just trained, and the arguments as a Namespace."""
    named = list(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    train_some(model, optimizer)
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": scheduler.state_dict(),
        "epoch": epoch,
        "args": argparse.Namespace(model="resnet50", epochs=90, lr=0.1),
    }
    torch.save(content, path)
    return momentum_by_name(named, optimizer)
