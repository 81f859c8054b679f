"""Other people's weights: reading them safely, recognising their names, fitting them, and the real files."""

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from vernier import models
from vernier.models import Arch, Options, weights
from vernier.models.resnet import ResNet
from vernier.models.stride_check import stride_variant

MEAN, STD = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def tiny(**options: object) -> ResNet:
    return models.build("resnet8-small", **{"num_classes": 4, "width": 4, **options})


def tiny_se() -> ResNet:
    arch = Arch(block="bottleneck", blocks=(1, 1, 1, 1), width=64, groups=32, group_width=4, squeeze=16)
    return ResNet(arch, Options(num_classes=3))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_safetensors_round_trip_with_metadata(tmp_path: Path) -> None:
    state = tiny().to(memory_format=torch.channels_last).state_dict()
    weights.save_safetensors(state, tmp_path / "w.safetensors", {"model": "resnet8-small"})
    assert same(weights.read(tmp_path / "w.safetensors"), state)
    assert weights.read_metadata(tmp_path / "w.safetensors") == {"model": "resnet8-small"}
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_kind_of_file_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    state = tiny().state_dict()
    save_file(state, tmp_path / "renamed.pth")
    torch.save(state, tmp_path / "renamed.safetensors")
    assert same(weights.read(tmp_path / "renamed.pth"), state)
    assert same(weights.read(tmp_path / "renamed.safetensors"), state)
    assert weights.read_metadata(tmp_path / "renamed.safetensors") == {}


@pytest.mark.parametrize("container", ["state_dict", "model", "model_state_dict"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_checkpoints_are_opened_and_wrappers_removed(tmp_path: Path, container: str, prefix: str) -> None:
    state = tiny().state_dict()
    wrapped = {prefix + key: value for key, value in state.items()}
    torch.save({"epoch": 3, container: wrapped, "args": argparse.Namespace(lr=0.1)}, tmp_path / "c.pth")
    assert same(weights.read(tmp_path / "c.pth"), state)


@pytest.mark.parametrize("container", ["state_dict_ema", "model_ema", "ema_state_dict"])
def test_averaged_weights_are_a_choice(tmp_path: Path, container: str) -> None:
    plain, averaged = tiny().state_dict(), tiny().state_dict()
    stored = {"n_averaged": torch.tensor(7), **{f"module.{key}": value for key, value in averaged.items()}}
    torch.save({"model": plain, container: stored}, tmp_path / "c.pth")
    assert same(weights.read(tmp_path / "c.pth"), plain)
    fitted, report = weights.adapt(weights.read(tmp_path / "c.pth", ema=True), tiny())
    assert same(fitted, averaged)
    assert report.dropped == ("n_averaged",)


def test_asking_for_absent_averaged_weights_lists_what_there_is(tmp_path: Path) -> None:
    torch.save({"model": tiny().state_dict(), "epoch": 1}, tmp_path / "c.pth")
    with pytest.raises(ValueError, match="no averaged weights; it has model, epoch"):
        weights.read(tmp_path / "c.pth", ema=True)


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
        weights.read(tmp_path / "evil.pth")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x80\x02.", b"PK\x03\x04 not a zip", b"\x10" + b"\0" * 7 + b"{garbage"]
)
def test_files_that_are_not_weights_are_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.pth"):
        weights.read(tmp_path / "x.pth")


def test_a_file_with_objects_in_it_names_them(tmp_path: Path) -> None:
    torch.save({"state_dict": tiny().state_dict(), "net": nn.Linear(1, 1)}, tmp_path / "whole.pth")
    with pytest.raises(ValueError, match=r"refers to torch\.nn\.modules\.linear\.Linear, and Vernier runs no code"):
        weights.read(tmp_path / "whole.pth")


def test_two_models_in_one_state_are_not_merged() -> None:
    with pytest.raises(ValueError, match="two models"):
        weights.translate({"conv1.weight": torch.zeros(1), "module.conv1.weight": torch.zeros(1)})


# ---- names ----------------------------------------------------------------------------------------------------------


def torchvision_like(net: ResNet) -> dict[str, Tensor]:
    return net.state_dict()


def nvidia_dle(net: ResNet) -> dict[str, Tensor]:
    """HEAD of NVIDIA's Deep Learning Examples: stages in one Sequential, SE as 1x1 convolutions."""
    outer = nn.Module()
    outer.conv1, outer.bn1, outer.fc = net.conv1, net.bn1, net.fc
    outer.layers = nn.Sequential(*net.stages)
    swapped = {
        key.replace(".se.fc1.", ".squeeze.squeeze.").replace(".se.fc2.", ".squeeze.expand."): value
        for key, value in outer.state_dict().items()
    }
    return {k: v[:, :, None, None] if ".squeeze." in k and v.dim() == 2 else v for k, v in swapped.items()}


def nvidia_2019(net: ResNet) -> dict[str, Tensor]:
    """The seed version: torchvision's names, SE as linear layers."""
    return {
        f"module.{key.replace('.se.fc1.', '.squeeze.squeeze.').replace('.se.fc2.', '.squeeze.expand.')}": value
        for key, value in net.state_dict().items()
    }


def timm_legacy(net: ResNet) -> dict[str, Tensor]:
    def old(key: str) -> str:
        stem = key.startswith(("conv1.", "bn1."))
        return ("layer0." if stem else "") + key.replace("fc.", "last_linear.", key.startswith("fc.")).replace(
            ".se.", ".se_module."
        )

    return {old(key): value for key, value in net.state_dict().items()}


@pytest.mark.parametrize(
    ("source", "foreign", "make"),
    [
        ("torchvision", torchvision_like, tiny),
        ("timm", torchvision_like, tiny_se),
        ("nvidia-dle", nvidia_dle, tiny),
        ("nvidia-dle", nvidia_dle, tiny_se),
        ("nvidia-dle", nvidia_2019, tiny_se),
        ("timm-legacy", timm_legacy, tiny_se),
    ],
)
def test_foreign_names_load_exactly(
    source: str, foreign: Callable[[ResNet], dict[str, Tensor]], make: Callable[[], ResNet]
) -> None:
    trained, fresh = make(), make()
    fitted, report = weights.adapt(foreign(trained), fresh)
    assert report.source == source
    assert same(fitted, trained.state_dict())
    assert (report.dropped, report.missing) == ((), ())
    fresh.load_state_dict(fitted)


def test_akamaster_linear_becomes_fc() -> None:
    net = models.build("resnet20-cifar", num_classes=10)
    theirs = {f"module.{key.replace('fc.', 'linear.')}": value for key, value in net.state_dict().items()}
    fitted, report = weights.adapt(theirs, models.build("resnet20-cifar", num_classes=10))
    assert same(fitted, net.state_dict())
    assert report.source == "akamaster-cifar"
    assert report.renamed == {"linear.weight": "fc.weight", "linear.bias": "fc.bias"}


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
def test_detector_backbones_load_and_say_what_stays_fresh(source: str, wrap: Callable[[ResNet], nn.Module]) -> None:
    trained, fresh = models.build("resnet34", num_classes=3, width=8), models.build("resnet34", num_classes=3, width=8)
    theirs = wrap(trained).state_dict()
    assert weights.identify(theirs) == "resnet34"
    with pytest.raises(ValueError, match=r"layer4\.0\.conv1\.weight is missing.* look like resnet34"):
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


def test_blurpool_weights_want_a_blurpool_network() -> None:
    trained = models.build("resnet50", num_classes=3, width=16, blurpool=True)
    blurred = {f"layer{n}.0.{where}.weight" for n in (2, 3, 4) for where in ("downsample.0", "conv2")}
    theirs = {k.replace(".weight", ".conv.weight") if k in blurred else k: v for k, v in trained.state_dict().items()}
    theirs["layer2.0.conv2.blur_filter"] = torch.ones(16, 1, 3, 3)
    fitted, report = weights.adapt(theirs, models.build("resnet50", num_classes=3, width=16, blurpool=True))
    assert same(fitted, trained.state_dict())
    assert report.source == "ffcv-blurpool"
    with pytest.raises(ValueError, match=r"model\.blurpool = true"):
        weights.adapt(theirs, models.build("resnet50", num_classes=3, width=16))


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_identify_names_every_model_of_the_catalogue(entry: models.ModelInfo) -> None:
    with torch.device("meta"):
        state = models.build(entry.name, num_classes=17).state_dict()
    found = weights.identify({f"module.{key}": value for key, value in state.items()})
    assert found == entry.name.removesuffix("-v1")  # one set of names and shapes for both


def test_identify_does_not_guess_wildly() -> None:
    assert weights.identify({"classifier.weight": torch.zeros(3, 3)}) is None
    assert weights.identify({"conv1.weight": torch.zeros(8, 3, 3, 3)}) is None
    assert weights.identify(tiny_se().state_dict()) is None


def test_export_has_torchvisions_names() -> None:
    net = models.build("resnet18", num_classes=3, width=8)
    wrapped = {f"_orig_mod.{key}": value for key, value in net.state_dict().items()}
    assert same(weights.to_torchvision(wrapped), net.state_dict())
    with pytest.raises(ValueError, match="squeeze"):
        weights.to_torchvision(tiny_se().state_dict())


# ---- fitting --------------------------------------------------------------------------------------------------------


def test_half_precision_is_cast_to_the_models_dtype() -> None:
    net = tiny()
    stored = {key: value.half() if value.dim() == 4 else value for key, value in net.state_dict().items()}
    fitted, _ = weights.adapt(stored, tiny().double())
    assert {value.dtype for value in fitted.values()} == {torch.float64, torch.int64}
    torch.testing.assert_close(fitted["conv1.weight"].float(), net.conv1.weight.data, rtol=1e-3, atol=1e-4)


def test_another_class_count_names_both_and_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"10 classes and the model has 4.*--reset-head"):
        weights.adapt(tiny(num_classes=10).state_dict(), tiny(num_classes=4))


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
def test_what_a_file_says_about_its_stride_is_held_against_the_model(
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


# ---- real files -----------------------------------------------------------------------------------------------------


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


def photographs(folder: Path, count: int, first: int = 0) -> Tensor:
    """Centre crops of 224 from a short side of 256, normalised."""
    crops = []
    for path in sorted(folder.glob("*.jpg"))[first : first + count]:
        pixels = torch.from_numpy(simplejpeg.decode_jpeg(path.read_bytes())).permute(2, 0, 1)[None].float()
        scale = 256 / min(pixels.shape[2:])
        size = [round(side * scale) for side in pixels.shape[2:]]
        pixels = functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
        top, left = ((side - 224) // 2 for side in size)
        crops.append((pixels[0, :, top : top + 224, left : left + 224] / 255 - MEAN) / STD)
    return torch.stack(crops)


def with_v15_statistics(state: dict[str, Tensor], images: Tensor) -> dict[str, Tensor]:
    """What the batch norms of the first strided block would remember, had this network been trained as v1.5."""
    model = models.build("resnet50", num_classes=1000).eval()
    fitted, _ = weights.adapt(state, model)
    model.load_state_dict(fitted)
    block, changed = model.get_submodule("layer2.0"), dict(state)

    def remember(name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor]) -> None:
            variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
            changed[f"layer2.0.{name}.running_mean"], changed[f"layer2.0.{name}.running_var"] = mean, variance

        return hook

    for name in ("bn2", "bn3"):
        block.get_submodule(name).register_forward_pre_hook(remember(name))
    with torch.inference_mode():
        block(model.stages[0](model.maxpool(model.relu(model.bn1(model.conv1(images))))))
    return changed


def test_photographs_tell_v1_from_v15(real_data: Callable[[str], Path]) -> None:
    state = weights.read(real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors")
    images = photographs(real_data("coco") / "val2017", 8)
    assert stride_variant(state, images).variant == "v1"
    as_v15 = with_v15_statistics(state, photographs(real_data("coco") / "train2017", 16))
    check = stride_variant(as_v15, images)
    assert check.variant == "v1.5"
    assert check.position > 0.75
    with pytest.raises(ValueError, match=r"The weights are v1 and resnet50 is v1\.5.*Use resnet50-v1"):
        weights.adapt(state, models.build("resnet50", num_classes=1000), images=images)
    _, report = weights.adapt(state, models.build("resnet50-v1", num_classes=1000), images=images)
    assert "photographs say v1 " in report.notes[0]


def test_noise_and_unnormalised_photographs_decide_nothing(real_data: Callable[[str], Path]) -> None:
    state = weights.read(real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors")
    torch.manual_seed(0)
    assert stride_variant(state, torch.randn(8, 3, 128, 128)).variant == "unclear"
    images = photographs(real_data("coco") / "val2017", 8)
    assert stride_variant(state, (images * STD + MEAN) * 255).variant == "unclear"


def test_stride_check_wants_photographs_and_bottlenecks() -> None:
    state = models.build("resnet50", num_classes=3, width=8).state_dict()
    with pytest.raises(ValueError, match="at least 8"):
        stride_variant(state, torch.zeros(2, 3, 64, 64))
    with pytest.raises(ValueError, match="look like resnet18"):
        stride_variant(models.build("resnet18", num_classes=3, width=8).state_dict(), torch.zeros(8, 3, 64, 64))
