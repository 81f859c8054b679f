"""TensorFlow's checkpoints, written here from the description of the format and read without TensorFlow."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("google_crc32c", reason="the extra 'tfrecord' is not installed")

from tests.conftest import Done
from tests.models.tf_files import Values, resnet_variables, write_checkpoint
from vernier.compat.tensorflow import find_checkpoint, read_checkpoint, resnet_state
from vernier.errors import ConfigError
from vernier.models import build, weights
from vernier.models.ssd import Ssd

Vernier = Callable[..., Done]
RESNET34 = ((3, 4, 6, 3), (64, 128, 256, 512))


@pytest.fixture(scope="module")
def variables() -> Values:
    return resnet_variables((2, 2, 2, 2), (8, 16, 32, 64))


@pytest.fixture
def prefix(tmp_path: Path, variables: Values) -> Path:
    write_checkpoint(tmp_path / "model.ckpt-28152", variables)
    return tmp_path / "model.ckpt-28152"


@pytest.mark.parametrize(("per_block", "shards"), [(1, 1), (7, 2), (1000, 3)])
def test_every_variable_is_read_as_it_was_written(
    tmp_path: Path, variables: Values, per_block: int, shards: int
) -> None:
    more = {"half": np.arange(6, dtype=np.float16).reshape(2, 3), "empty": np.zeros((0, 4), np.float32)}
    write_checkpoint(tmp_path / "m", {**variables, **more}, per_block=per_block, shards=shards)
    read = read_checkpoint(tmp_path / "m")
    assert read.keys() == {*variables, *more}
    assert all(np.array_equal(read[name].numpy(), value) for name, value in {**variables, **more}.items())


def test_a_checkpoint_is_found_by_its_start_its_files_and_its_folder(prefix: Path, variables: Values) -> None:
    for path in (prefix, prefix.with_name(f"{prefix.name}.index"), prefix.parent):
        assert find_checkpoint(path) == prefix
    write_checkpoint(prefix.with_name("model.ckpt-3"), variables)
    assert find_checkpoint(prefix.parent) is None  # which one?
    (prefix.parent / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-3"\n')
    assert find_checkpoint(prefix.parent) == prefix.with_name("model.ckpt-3")
    assert find_checkpoint(prefix.with_name("model.ckpt-4")) is None


def test_basic_blocks_get_torchvisions_names(prefix: Path, variables: Values) -> None:
    """The projection of a stage is created before the block it belongs to: conv2d_5 in the second stage."""
    model = build("resnet18", num_classes=10, width=8)
    report = weights.load(prefix, model)
    assert report.notes[0] == "TensorFlow checkpoint model.ckpt-28152"
    assert "trained with tf padding, used with torch" in report.notes[1]
    for padding in ("tf", "tf-fixed"):  # the files do not contain which of the two it was
        assert len(weights.load(prefix, build("resnet18", num_classes=10, width=8, padding=padding)).notes) == 1
    state = model.state_dict()
    for ours, theirs in {"conv1": "conv2d", "layer2.0.downsample.0": "conv2d_5", "layer2.0.conv1": "conv2d_6"}.items():
        kernel = torch.from_numpy(variables[f"{theirs}/kernel"])
        assert torch.equal(state[f"{ours}.weight"], kernel.permute(3, 2, 0, 1)), ours
    statistics = torch.from_numpy(variables["batch_normalization_5/moving_variance"])
    assert torch.equal(state["layer2.0.downsample.1.running_var"], statistics)
    assert torch.equal(state["fc.weight"], torch.from_numpy(variables["dense/kernel"]).t())


def test_bottlenecks_get_torchvisions_names() -> None:
    values = {
        name: torch.from_numpy(v)
        for name, v in resnet_variables((3, 4, 6, 3), (8, 16, 32, 64), bottleneck=True).items()
    }
    model = build("resnet50", num_classes=10, width=8)
    fitted, _ = weights.adapt(resnet_state(values), model)
    assert torch.equal(fitted["layer1.0.downsample.0.weight"], values["conv2d_1/kernel"].permute(3, 2, 0, 1))
    assert fitted["layer4.2.bn3.bias"].equal(values["batch_normalization_52/beta"])


def test_a_detectors_backbone_starts_from_it(tmp_path: Path) -> None:
    """Habana's --resnet_checkpoint: a ResNet-34 classifier, or the whole detector that was trained from one."""
    values = resnet_variables(*RESNET34)
    write_checkpoint(tmp_path / "model.ckpt-28152", values)
    detector = build("ssd300-resnet34", num_classes=81)
    assert isinstance(detector, Ssd)
    weights.load_backbone(tmp_path, detector)
    kernel = torch.from_numpy(values["conv2d_2/kernel"]).permute(3, 2, 0, 1)
    assert torch.equal(detector.backbone.state_dict()["layer1.0.conv2.weight"], kernel)
    whole = {f"resnet34/{name}": torch.from_numpy(value) for name, value in values.items() if "dense" not in name}
    whole["ssd/class_net/class-3/kernel"] = torch.zeros(3, 3, 256, 324)
    assert torch.equal(resnet_state(whole)["layer1.0.conv2.weight"], kernel)


def test_damaged_and_missing_files_are_refused(prefix: Path) -> None:
    data = prefix.with_name(f"{prefix.name}.data-00000-of-00002")
    content = data.read_bytes()
    data.write_bytes(content[:-3])
    with pytest.raises(ConfigError, match=r"damaged or truncated: .* is not what the index says"):
        read_checkpoint(prefix)
    data.write_bytes(content[:50] + b"\xff" + content[51:])
    with pytest.raises(ConfigError, match="damaged or truncated"):
        read_checkpoint(prefix)
    data.unlink()
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory\. A checkpoint needs all"):
        read_checkpoint(prefix)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:40], lambda b: b"\xff" + b[1:], lambda b: b""])
def test_a_damaged_index_is_refused(prefix: Path, damage: Callable[[bytes], bytes]) -> None:
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(damage(index.read_bytes()))
    with pytest.raises(ConfigError, match="is not the index of a TensorFlow checkpoint"):
        read_checkpoint(prefix)


def test_other_networks_are_refused_with_what_they_have() -> None:
    with pytest.raises(ConfigError, match=r"not that of a ResNet .* it has layer/\.ATTRIBUTES/VARIABLE_VALUE"):
        resnet_state({"layer/.ATTRIBUTES/VARIABLE_VALUE": torch.zeros(1)})
    odd = {f"conv2d{s}/kernel": torch.zeros(5, 5, 3, 3) for s in ("", "_1", "_2")}
    odd |= {f"batch_normalization{s}/gamma": torch.zeros(3) for s in ("", "_1", "_2")}
    with pytest.raises(ConfigError, match="no ResNet: kernels of 5, 5, 5"):
        resnet_state(odd)


def test_the_command_line_takes_it(prefix: Path, shapes: Path, tmp_path: Path, vernier_here: Vernier) -> None:
    small = ["--data", str(shapes), "--set", "model.width=8", "--set", "data.image_px=32"]
    done = vernier_here(
        "train",
        "shapes-quick",
        "--model",
        "resnet18",
        "--smoke",
        "--out",
        str(tmp_path / "runs"),
        *small,
        "--weights",
        str(prefix),
    )
    assert done.code == 0, done.err
    assert "TensorFlow checkpoint model.ckpt-28152" in done.err
    index = f"{prefix}.index"
    done = vernier_here("eval", "--model", "resnet18", "--weights", index, *small, "--max-eval-steps", "1")
    assert done.code == 0, done.err
    assert "TensorFlow checkpoint model.ckpt-28152" in done.out
    missing = vernier_here("train", "shapes-quick", "--data", str(shapes), "--weights", f"{prefix}9")
    assert (missing.code, "a TensorFlow checkpoint (model.ckpt-N)" in missing.err) == (2, True)
