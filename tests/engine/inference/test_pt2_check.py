"""Hostile files of torch.export: each of them makes PyTorch's own reader, or what it returns, write a file."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vernier.engine.inference.model_file import open_network
from vernier.engine.inference.pt2_check import checked_archive, plain_values_only
from vernier.errors import ConfigError, RunFailed

IMAGES = torch.ones(2, 3, 4, 4, dtype=torch.uint8)
MODEL, INPUTS = "x/models/model.json", "x/data/sample_inputs/model.pt"


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images.float() / 255).relu().mean((2, 3))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    program = torch.export.export(Network(), (IMAGES,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, tmp_path / "x.pt2", extra_files={"about.json": "{}"})
    return tmp_path / "x.pt2"


def changed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The file with other parts."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def in_model(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(parts: dict[str, bytes]) -> None:
        tree = json.loads(parts[MODEL])
        change(tree)
        parts[MODEL] = json.dumps(tree).encode()

    return apply


class Executes:
    """Pickled, it runs a command when it is read."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def with_pickle(command: str) -> Callable[[dict[str, bytes]], None]:
    def apply(parts: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        torch.save({"x": Executes(command)}, buffer, pickle_module=pickle)
        parts[INPUTS] = buffer.getvalue()

    return apply


def evaluates(command: str) -> Callable[[dict[str, Any]], None]:
    """Every symbolic size becomes an expression, which PyTorch gives to sympy, which evaluates it as Python."""

    def walk(tree: Any) -> None:
        for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            walk(value)
        if isinstance(tree, dict) and "expr_str" in tree:
            tree["expr_str"] = f"__import__('os').system({command!r}) + 2"

    return walk


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (lambda command: with_pickle(command), "cannot be run"),
        (lambda command: in_model(evaluates(command)), "the expression"),
    ],
    ids=["pickle", "expression"],
)
def test_what_pytorch_executes_is_refused_and_not_executed(
    exported: Path, tmp_path: Path, hostile: Any, reason: str
) -> None:
    mark = tmp_path / "executed"
    changed(exported, hostile(f"touch {mark}"))
    with pytest.raises((ConfigError, RunFailed), match=reason):
        open_network(exported, "torch-export")
    assert not mark.exists()
    with suppress(Exception):  # after the command was run
        torch.export.load(io.BytesIO(exported.read_bytes())).module()(IMAGES)
    assert mark.exists(), "the file would have been harmless: this test shows nothing"


@pytest.mark.parametrize(
    "name",
    ["x/data/aotinductor/model/x.so", "x/data/constants/custom_obj_0", "x/models/other.json", "x/../../y", "x/code.py"],
)
def test_parts_that_a_network_does_not_need_are_refused(exported: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="it has the part"):
        open_network(changed(exported, lambda parts: parts.update({name: b"{}"})), "torch-export")


@pytest.mark.parametrize(
    "name",
    ["torch.serialization.os.system", "torch.load", "_operator.methodcaller", "torch.ops.load_library", "#ext", "eval"],
)
def test_functions_that_are_no_operations_of_a_network_are_refused(exported: Path, name: str) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["graph_module"]["graph"]["nodes"][0]["target"] = name

    with pytest.raises(ConfigError, match="the operation"):
        open_network(changed(exported, in_model(change)), "torch-export")


def test_containers_that_are_classes_are_refused(exported: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = (
            '[1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}]'
        )

    with pytest.raises(ConfigError, match="the container"):
        checked_archive(changed(exported, in_model(change)))


def test_guards_and_notes_are_left_out_and_the_network_computes_the_same(exported: Path) -> None:
    expected = torch.export.load(io.BytesIO(exported.read_bytes())).module()(IMAGES)
    changed(exported, in_model(lambda tree: tree.update(guards_code=["__import__('os')._exit(3)"])))
    with zipfile.ZipFile(checked_archive(exported)) as archive:
        tree = json.loads(archive.read(MODEL))
    assert tree["guards_code"] == []
    assert {str(node["metadata"]) for node in tree["graph_module"]["graph"]["nodes"]} == {"{}"}
    assert torch.equal(open_network(exported, "torch-export")(IMAGES), expected)


def test_a_long_expression_is_refused_at_once(exported: Path) -> None:
    def change(tree: Any) -> None:
        tree["range_constraints"] = {"s0": {"expr_str": "1" * 100_000 + "!"}}

    with pytest.raises(ConfigError, match="the expression"):
        checked_archive(changed(exported, in_model(change)))


def test_the_variable_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", None):
        monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
        if value is not None:
            monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", value)
        with plain_values_only():
            assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        assert os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD") == value
