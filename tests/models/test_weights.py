"""Weights files: reading, refusing, fitting, and real files."""

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.models.small_networks import MEAN, STD, same, tiny
from vernier import models
from vernier.models import weights
from vernier.models.resnet import ResNet
from vernier.models.weights import WeightFormat, find_format


def test_safetensors_round_trip_with_metadata(tmp_path: Path) -> None:
    state = tiny().to(memory_format=torch.channels_last).state_dict()
    weights.save_safetensors(state, tmp_path / "w.safetensors", {"model": "resnet8-small"})
    assert same(weights.read_file(tmp_path / "w.safetensors", ema=False).state, state)
    assert weights.read_metadata(tmp_path / "w.safetensors") == {"model": "resnet8-small"}
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_the_kind_of_file_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    state = tiny().state_dict()
    save_file(state, tmp_path / "renamed.pth")
    torch.save(state, tmp_path / "renamed.safetensors")
    assert same(weights.read_file(tmp_path / "renamed.pth", ema=False).state, state)
    assert same(weights.read_file(tmp_path / "renamed.safetensors", ema=False).state, state)
    assert weights.read_metadata(tmp_path / "renamed.safetensors") == {}


@pytest.mark.parametrize("container", ["state_dict", "model", "model_state_dict"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_checkpoints_are_opened_and_wrappers_removed(tmp_path: Path, container: str, prefix: str) -> None:
    state = tiny().state_dict()
    wrapped = {prefix + key: value for key, value in state.items()}
    torch.save({"epoch": 3, container: wrapped, "args": argparse.Namespace(lr=0.1)}, tmp_path / "c.pth")
    assert same(weights.read_file(tmp_path / "c.pth", ema=False).state, state)


@pytest.mark.parametrize("container", ["state_dict_ema", "model_ema", "ema_state_dict"])
def test_averaged_weights_are_a_choice(tmp_path: Path, container: str) -> None:
    plain, averaged = tiny().state_dict(), tiny().state_dict()
    stored = {"n_averaged": torch.tensor(7), **{f"module.{key}": value for key, value in averaged.items()}}
    torch.save({"model": plain, container: stored}, tmp_path / "c.pth")
    assert same(weights.read_file(tmp_path / "c.pth", ema=False).state, plain)
    fitted, report = weights.adapt(weights.read_file(tmp_path / "c.pth", ema=True).state, tiny())
    assert same(fitted, averaged)
    assert report.dropped == ("n_averaged",)


def test_asking_for_absent_averaged_weights_lists_what_there_is(tmp_path: Path) -> None:
    torch.save({"model": tiny().state_dict(), "epoch": 1}, tmp_path / "c.pth")
    with pytest.raises(ValueError, match="no averaged weights; it has model, epoch"):
        weights.read_file(tmp_path / "c.pth", ema=True)


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.target,))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, lambda obj, path: path.write_bytes(pickle.dumps(obj))])
def test_code_in_a_file_is_never_run(tmp_path: Path, write: Callable[[object, Path], None]) -> None:
    write({"state_dict": tiny().state_dict(), "bomb": Bomb(tmp_path / "boom")}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match=r"Cannot read weights from .*evil\.pth"):
        weights.read_file(tmp_path / "evil.pth", ema=False)
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x80\x02.", b"PK\x03\x04 not a zip", b"\x10" + b"\0" * 7 + b"{garbage"]
)
def test_files_that_are_not_weights_are_refused_with_the_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.pth"):
        weights.read_file(tmp_path / "x.pth", ema=False)


def test_a_file_with_objects_in_it_names_them(tmp_path: Path) -> None:
    torch.save({"state_dict": tiny().state_dict(), "net": nn.Linear(1, 1)}, tmp_path / "whole.pth")
    with pytest.raises(ValueError, match=r"refers to torch\.nn\.modules\.linear\.Linear, and Vernier runs no code"):
        weights.read_file(tmp_path / "whole.pth", ema=False)


def mlperf_ssd(net: ResNet) -> nn.Module:
    stem = (net.conv1, net.bn1, net.relu, net.maxpool)
    backbone = nn.Module()
    backbone.layer1 = nn.Sequential(*stem, *net.stages[:2])
    backbone.layer2 = nn.Sequential(net.stages[2])
    detector = nn.Module()
    detector.model = backbone
    detector.loc = nn.ModuleList([nn.Conv2d(4, 4, 3)])
    return detector


def nvidia_ssd(net: ResNet) -> nn.Module:
    inner, detector = nn.Module(), nn.Module()
    inner.feature_extractor = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, *net.stages[:3])
    detector.feature_extractor = inner
    detector.conf = nn.ModuleList([nn.Conv2d(4, 4, 3)])
    return detector


@pytest.mark.parametrize(("source", "wrap"), [("mlperf-ssd", mlperf_ssd), ("nvidia-ssd", nvidia_ssd)])
def test_detector_backbones_load_and_report_what_keeps_its_initial_value(
    source: str, wrap: Callable[[ResNet], nn.Module]
) -> None:
    trained, fresh = models.build("resnet34", num_classes=3, width=8), models.build("resnet34", num_classes=3, width=8)
    theirs = wrap(trained).state_dict()
    assert weights.identify(theirs) == "resnet34"
    with pytest.raises(ValueError, match=r"layer4\.0\.conv1\.weight is missing.* look like a part of resnet34"):
        weights.adapt(theirs, fresh)
    fitted, report = weights.adapt(theirs, fresh, optional=("layer4.", "fc."))
    assert report.source == source
    assert set(report.dropped) <= {f"{head}.0.{kind}" for head in ("loc", "conf") for kind in ("weight", "bias")}
    assert {name.split(".")[0] for name in report.missing} == {"layer4", "fc"}
    for key in (
        "conv1.weight",
        "bn1.running_var",
        "layer1.2.conv2.weight",
        "layer2.0.downsample.0.weight",
        "layer3.5.bn2.bias",
    ):
        assert torch.equal(fitted[key], trained.state_dict()[key])


def test_a_backbone_takes_what_it_needs_from_a_classifier() -> None:
    trained = models.build("resnet18", num_classes=3, width=8)
    backbone = nn.Sequential()
    for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
        backbone.add_module(name, models.build("resnet18", num_classes=3, width=8).get_submodule(name))
    fitted, report = weights.adapt(trained.state_dict(), backbone, optional=("layer4.", "fc."))
    assert torch.equal(fitted["layer3.1.conv2.weight"], trained.state_dict()["layer3.1.conv2.weight"])
    assert {name.split(".")[0] for name in report.dropped} == {"layer4", "fc"}


def test_blurpool_weights_need_a_blurpool_network() -> None:
    trained = models.build("resnet50", num_classes=3, width=16, blurpool=True)
    blurred = {f"layer{n}.0.{where}.weight" for n in (2, 3, 4) for where in ("downsample.0", "conv2")}
    theirs = {k.replace(".weight", ".conv.weight") if k in blurred else k: v for k, v in trained.state_dict().items()}
    theirs["layer2.0.conv2.blur_filter"] = torch.ones(16, 1, 3, 3)
    fitted, report = weights.adapt(theirs, models.build("resnet50", num_classes=3, width=16, blurpool=True))
    assert same(fitted, trained.state_dict())
    assert report.source == "ffcv-blurpool"
    with pytest.raises(ValueError, match=r"model\.blurpool = true"):
        weights.adapt(theirs, models.build("resnet50", num_classes=3, width=16))


@pytest.mark.parametrize(
    ("metadata", "name", "fits"),
    [
        ({"arch": "resnet50 v1 (stride 2 in the first 1x1)"}, "resnet50-v1", True),
        ({"arch": "resnet50 v1 (stride 2 in the first 1x1)"}, "resnet50", False),
        ({"arch": "ResNet50 v1.5"}, "resnet50", True),
        ({"arch": "ResNet50 v1.5"}, "resnet50-v1", False),
        ({"model": "resnet50"}, "resnet50-v1", False),
        ({"model": "resnet50-v1"}, "resnet50-v1", True),
        ({"format": "pt"}, "resnet50", True),
    ],
)
def test_the_metadata_of_a_file_is_compared_with_the_models_stride(
    metadata: dict[str, str], name: str, fits: bool
) -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    model = models.build(name, num_classes=3, width=8)
    if fits:
        weights.adapt(state, model, metadata=metadata)
        return
    with pytest.raises(ValueError, match="another stride"):
        weights.adapt(state, model, metadata=metadata)


def test_without_evidence_the_report_says_the_stride_was_assumed() -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    _, report = weights.adapt(state, models.build("resnet50-v1", num_classes=3, width=8))
    assert report.notes == ("assumed to be v1: names and shapes do not tell v1 from v1.5",)


def test_half_precision_is_cast_to_the_models_dtype() -> None:
    net = tiny()
    stored = {key: value.half() if value.dim() == 4 else value for key, value in net.state_dict().items()}
    fitted, _ = weights.adapt(stored, tiny().double())
    assert {value.dtype for value in fitted.values()} == {torch.float64, torch.int64}
    torch.testing.assert_close(fitted["conv1.weight"].float(), net.conv1.weight.data, rtol=1e-3, atol=1e-4)


def test_another_class_count_names_both_and_the_way_out() -> None:
    with pytest.raises(ValueError, match="10 classes and the model has 4") as error:
        weights.adapt(tiny(num_classes=10).state_dict(), tiny(num_classes=4))
    assert error.value.works == [("model.reset_head", True), ("model.num_classes", 10)]


def test_reset_head_keeps_the_backbone_and_a_fresh_classifier() -> None:
    trained, fresh = tiny(num_classes=10), tiny(num_classes=4)
    fitted, report = weights.adapt(trained.state_dict(), fresh, reset_head=True)
    assert torch.equal(fitted["fc.weight"], fresh.fc.weight)
    assert torch.equal(fitted["layer3.0.conv2.weight"], trained.state_dict()["layer3.0.conv2.weight"])
    assert report.missing == report.dropped == ("fc.weight", "fc.bias")
    headless = {key: value for key, value in trained.state_dict().items() if not key.startswith("fc.")}
    assert weights.adapt(headless, fresh, reset_head=True)[1].dropped == ()


def test_misfits_are_one_error_with_a_few_names_and_a_guess() -> None:
    state = models.build("resnet20-cifar", num_classes=4).state_dict()
    with pytest.raises(ValueError, match="do not fit resnet8-small") as caught:
        weights.adapt(state, models.build("resnet8-small", num_classes=4))
    message = str(caught.value)
    assert message.count(";") == 5
    assert "more" in message
    assert message.endswith("They look like resnet20-cifar.")


def test_shape_misfits_show_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"conv1\.weight is 8x3x3x3, the model has 4x3x3x3"):
        weights.adapt(tiny(width=8).state_dict(), tiny(width=4))


def test_adapting_does_not_touch_the_model() -> None:
    net = tiny()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    weights.adapt(tiny().state_dict(), net)
    assert same(net.state_dict(), before)


@pytest.mark.slow
def test_cifar_resnet20_scores_its_published_accuracy(real_data: Callable[[str], Path]) -> None:
    """akamaster's ResNet-20: 8.27 % error, 827 of the 10,000 test images."""
    folder = real_data("cifar10")
    model = models.build("resnet20-cifar", num_classes=10).eval()
    report = weights.load(folder / "resnet20-12fca82f.th", model)
    assert report.source == "akamaster-cifar"
    records = np.fromfile(folder / "cifar-10-batches-bin" / "test_batch.bin", np.uint8).reshape(10_000, 3073)
    labels = torch.from_numpy(records[:, 0].astype(np.int64))
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
    model = model.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        right = sum(
            int((model((batch.float() / 255 - MEAN) / STD).argmax(1) == wanted).sum())
            for batch, wanted in zip(images.split(250), labels.split(250), strict=True)
        )
    assert right == 9173


def test_imagenet_resnet50_v1_loads_strictly(real_data: Callable[[str], Path]) -> None:
    path = real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors"
    model = models.build("resnet50-v1", num_classes=1000)
    report = weights.load(path, model)
    assert (report.source, report.renamed, report.dropped, report.missing) == ("torchvision", {}, (), ())
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="Use resnet50-v1"):
        weights.load(path, models.build("resnet50", num_classes=1000))


def test_other_files_are_not_claimed(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pth")
    assert find_format(tmp_path / "x.pth") is None
    assert find_format(tmp_path / "none") is None


def test_tensorflow_is_found_through_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-7.index").touch()
    (tmp_path / "model.ckpt-7.data-00000-of-00001").touch()
    found = find_format(tmp_path / "model.ckpt-7")
    assert found is not None
    assert found[0].about == "TensorFlow checkpoint"


def test_weights_of_an_outside_format_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "weights.mine"
    file.touch()
    mine = WeightFormat(
        about="My file",
        find=lambda path: path if path.suffix == ".mine" else None,
        read=lambda path: {"fc.weight": torch.ones(2, 2)},
    )
    monkeypatch.setattr(weights, "load_group", lambda group, kind: {"mine": mine})
    read = weights.read_file(file)
    assert list(read.state) == ["fc.weight"]
    assert read.notes == ("My file weights.mine",)
