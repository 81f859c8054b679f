"""Weights of others: safetensors, torch files, TensorFlow checkpoints, and what ONNX files say."""

import functools
import io
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from tests.engine.inference.loading import load_trained
from tests.models.small_networks import tiny
from tests.models.tf_files import resnet_variables, write_checkpoint
from tests.models.their_checkpoints import write_nvidia_fp32
from vernier.compat.protobuf import length_delimited, varint
from vernier.compat.training_checkpoints import read_training
from vernier.engine.inference.export import describe_model
from vernier.engine.inference.model_file import read_description, to_metadata
from vernier.engine.inference.trained import ModelChoice, config_of_file, load_model
from vernier.engine.starting_weights import weights_file
from vernier.models import weights

from .base import Files, Target, attempt
from .files import GOLDEN, written


@functools.cache
def _described() -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The weights of a golden run, and how an exported file describes them."""
    trained = load_trained(GOLDEN / "classifier")
    state = {name: tensor.contiguous() for name, tensor in trained.model.state_dict().items()}
    return state, to_metadata(describe_model(trained))


@functools.cache
def _network() -> nn.Module:
    """Weights are loaded into it again and again; building it takes longer than reading a file."""
    return tiny()


def _state() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {name: tensor.clone() for name, tensor in tiny().state_dict().items()}


def _safetensors() -> dict[str, Files]:
    few = {"conv1.weight": torch.zeros(2, 3, 1, 1), "fc.bias": torch.ones(2), "n": torch.tensor(3)}
    timm = {
        "architecture": "resnet8_small",
        "pretrained_cfg": {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.2] * 3, "crop_pct": 0.9},
    }
    return {
        "network": {"model.safetensors": save(_state())},
        "described": {"model.safetensors": save(*_described())},
        "few": {"model.safetensors": save(few, {"model": "resnet8-small"}), "config.json": json.dumps(timm).encode()},
    }


def _read_safetensors(folder: Path) -> None:
    path = folder / "model.safetensors"
    attempt(lambda: read_description(path))
    attempt(lambda: weights.load(weights_file(str(path)), _network()))
    load_model(ModelChoice(path=path))


def _torch_file(content: object, *, old: bool = False) -> bytes:
    out = io.BytesIO()
    torch.save(content, out, _use_new_zipfile_serialization=not old)
    return out.getvalue()


def _torch() -> dict[str, Files]:
    nvidia = written(lambda root: write_nvidia_fp32(tiny(), root / "model.pth", epoch=3, best=55.0))
    few = {"conv1.weight": torch.zeros(2, 3, 1, 1), "fc.bias": torch.ones(2)}
    lists = {"model": few, "epoch": 3, "args": [1, "x", None, 2.5, True, (1, 2)]}
    return {
        "network": {"model.pth": _torch_file(_state())},
        "nvidia": nvidia,
        "few": {"model.pth": _torch_file(lists)},
        "before-1.6": {"model.old": _torch_file(lists, old=True)},
    }


def _read_torch(folder: Path) -> None:
    path = next(folder.glob("model.*"))
    attempt(lambda: read_description(path))
    attempt(lambda: read_training(path))
    weights.load(weights_file(str(path)), _network())


def _tensorflow() -> dict[str, Files]:
    variables = resnet_variables((1, 1, 1, 1), (4, 8, 8, 8))
    few = {"conv2d/kernel": np.zeros((1, 1, 3, 2), np.float32), "batch_normalization/gamma": np.ones(2, np.float32)}
    both = {
        "resnet": written(lambda root: write_checkpoint(root / "model.ckpt-7", variables)),
        "few": written(lambda root: write_checkpoint(root / "model.ckpt-7", few, per_block=100, shards=1)),
    }
    note = b'model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
    return {name: {**files, "checkpoint": note} for name, files in both.items()}


def _read_tensorflow(folder: Path) -> None:
    attempt(lambda: weights.read_file(folder))
    weights.load(weights_file(str(folder / "model.ckpt-7")), _network())


def _network_files() -> dict[str, Files]:
    """What Vernier itself reads of an ONNX file; its network is up to its runtime."""
    pairs = [length_delimited(1, k.encode()) + length_delimited(2, v.encode()) for k, v in _described()[1].items()]
    onnx = (
        varint(1 << 3) + varint(8) + length_delimited(2, b"pytorch") + b"".join(length_delimited(14, p) for p in pairs)
    )
    return {"onnx": {"model.onnx": onnx}}


def _read_network_file(folder: Path) -> None:
    path = next(folder.glob("model.*"))
    about = read_description(path)
    if about is not None:
        config_of_file(about, path)


TARGETS = (
    Target("safetensors", _safetensors, _read_safetensors, refused=2),
    Target("torch", _torch, _read_torch, refused=2),
    Target("tensorflow", _tensorflow, _read_tensorflow, refused=2),
    Target("network-file", _network_files, _read_network_file, text=True),
)
