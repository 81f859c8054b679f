"""The detector against MLPerf's tables, an independent forward pass, and weights under other people's names."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vernier import models
from vernier.errors import ConfigError
from vernier.models import weights
from vernier.models.resnet import ResNet
from vernier.models.ssd import Ssd, make_anchors

DETECTORS = [entry for entry in models.describe() if entry.detector]


def build(name: str, **options: object) -> Ssd:
    model = models.build(name, **{"num_classes": 5, **options})
    assert isinstance(model, Ssd)
    return model


# ---- shape and cost -------------------------------------------------------------------------------------------------


def test_published_figures_of_ssd300_resnet34() -> None:
    entry = models.info("ssd300-resnet34")
    assert entry.params == 19_972_534
    assert round(entry.gmac, 2) == 15.86
    with torch.device("meta"):
        model = build("ssd300-resnet34", num_classes=81)
    backbone = sum(p.numel() for p in model.backbone.parameters())
    assert backbone == 8_170_304
    assert backbone + sum(p.numel() for p in model.extras.parameters()) == 11_744_704


def mlperf_anchors() -> Tensor:
    """From the published table, box by box."""
    steps, grids = (8, 16, 32, 64, 100, 300), (38, 19, 10, 5, 3, 1)
    scales, ratios = (21, 45, 99, 153, 207, 261, 315), ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
    boxes = []
    for k in range(6):
        small, large = scales[k] / 300, math.sqrt(scales[k] * scales[k + 1]) / 300
        shapes = [(small, small), (large, large)]
        for r in ratios[k]:
            shapes += [(small * math.sqrt(r), small / math.sqrt(r)), (small / math.sqrt(r), small * math.sqrt(r))]
        boxes += [
            [(j + 0.5) * steps[k] / 300, (i + 0.5) * steps[k] / 300, w, h]
            for w, h in shapes
            for i in range(grids[k])
            for j in range(grids[k])
        ]
    return torch.tensor(boxes).clamp(0, 1)


@pytest.mark.parametrize("name", ["ssd300-resnet18", "ssd300-resnet34", "ssd300-resnet50", "ssd300-resnet50-v1"])
def test_default_boxes_are_mlperfs(name: str) -> None:
    model = build(name, width=8)
    assert [level.grid**2 * len(level.shapes) for level in model.levels] == [5776, 2166, 600, 150, 36, 4]
    torch.testing.assert_close(make_anchors(model.levels), mlperf_anchors(), rtol=0, atol=1e-6)


def test_first_and_last_default_box() -> None:
    anchors = make_anchors(build("ssd300-resnet34", width=8).levels)
    assert anchors[0].tolist() == pytest.approx([4 / 300, 4 / 300, 0.07, 0.07])
    assert anchors[1].tolist() == pytest.approx([12 / 300, 4 / 300, 0.07, 0.07])  # columns first
    assert anchors[38 * 38].tolist() == pytest.approx([4 / 300, 4 / 300, *[math.sqrt(21 * 45) / 300] * 2])
    assert anchors[-1].tolist() == pytest.approx([0.5, 0.5, 0.87 / math.sqrt(2), 1.0])
    assert anchors.min() >= 0
    assert anchors.max() <= 1


def pyramid_twin(model: Ssd, images: Tensor) -> tuple[Tensor, Tensor]:
    """The detector on a feature pyramid, written down step by step from its weights."""
    net = model.backbone
    x = net.layer1(F.max_pool2d(F.relu(net.bn1(net.conv1(images))), 3, stride=2, padding=1))
    fine = net.layer2(x)
    coarse = net.layer3(fine)
    state = dict(model.pyramid.named_parameters())
    top = F.conv2d(coarse, state["lateral.1.weight"], state["lateral.1.bias"])
    side = F.conv2d(fine, state["lateral.0.weight"], state["lateral.0.bias"])
    enlarged = top.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    maps = [model.pyramid.smooth[0](side + enlarged), model.pyramid.smooth[1](top)]
    for extra in model.extras:
        maps.append(extra(maps[-1]))
    outputs = []
    for heads, values in ((model.loc, 4), (model.conf, model.num_classes)):
        parts = [
            head(features).flatten(2).unflatten(1, (values, -1)).flatten(2)
            for head, features in zip(heads, maps, strict=True)
        ]
        outputs.append(torch.cat(parts, dim=2).transpose(1, 2))
    return outputs[0], outputs[1]


@pytest.mark.parametrize("name", ["ssd-fpn-resnet18", "ssd-fpn-resnet34", "ssd-fpn-resnet50", "ssd-fpn-resnet50-v1"])
def test_a_feature_pyramid_adds_the_coarser_map_to_the_finer(name: str) -> None:
    model = build(name, width=8, image_px=96).eval()
    assert [level.grid for level in model.levels] == [12, 6, 3, 1]
    with torch.no_grad():
        images = torch.randn(2, 3, 96, 96)
        for output, twin in zip(model(images), pyramid_twin(model, images), strict=True):
            torch.testing.assert_close(output, twin)
        assert output.shape == (2, len(make_anchors(model.levels)), 5)


def test_a_detector_on_a_pyramid_is_recognised_by_its_weights_and_takes_a_classifiers_backbone() -> None:
    model = build("ssd-fpn-resnet50", width=8)
    assert weights.identify(model.state_dict()) == "ssd-fpn-resnet50"
    state, report = weights.adapt(model.state_dict(), build("ssd-fpn-resnet50", width=8))
    assert set(state) == set(model.state_dict())
    assert report.source == "vernier-ssd"
    classifier = models.build("resnet50", num_classes=7, width=8)
    fitted, _ = weights.adapt(classifier.state_dict(), model.backbone, optional=("layer4.", "fc."))
    torch.testing.assert_close(fitted["layer3.5.conv3.weight"], classifier.state_dict()["layer3.5.conv3.weight"])
    assert models.info("ssd-fpn-resnet18").groups == ("backbone", "pyramid", "extras", "loc", "conf")


@pytest.mark.parametrize(
    ("px", "grids"),
    [
        (64, [8, 4, 2]),
        (128, [16, 8, 4, 2]),
        (160, [20, 10, 5, 3, 1]),
        (300, [38, 19, 10, 5, 3, 1]),
        (321, [41, 21, 11, 6, 3, 1]),
        (512, [64, 32, 16, 8, 4, 2]),
    ],
)
@pytest.mark.parametrize("name", ["ssd300-resnet34", "ssd300-resnet50-v1"])
def test_levels_follow_the_image(name: str, px: int, grids: list[int]) -> None:
    model = build(name, width=8, image_px=px).eval()
    assert [level.grid for level in model.levels] == grids
    with torch.no_grad():
        offsets, logits = model(torch.zeros(1, 3, px, px))
    assert offsets.shape == (1, len(make_anchors(model.levels)), 4)
    assert logits.shape == (1, len(make_anchors(model.levels)), 5)
    sizes = [level.size for level in model.levels]
    assert (sizes[0], sizes[1], sizes[-1]) == pytest.approx((0.07, 0.15, 0.87))
    first = make_anchors(model.levels)[: grids[0] ** 2, 0].reshape(grids[0], grids[0])
    assert torch.allclose(first[:, 1] - first[:, 0], torch.tensor(8 / px))


@pytest.mark.parametrize("stem", ["small", "small-pool", "imagenet"])
def test_every_stem_has_its_grid(stem: str) -> None:
    model = build("ssd-small", width=8, image_px=50, stem=stem).eval()
    assert model(torch.zeros(1, 3, 50, 50))[0].shape[1] == len(make_anchors(model.levels))


def test_default_boxes_of_other_sizes() -> None:
    """Small objects need small boxes: the first level's squares have the requested size, the weights' shapes stay."""
    own, other = (  # type: ignore[assignment]
        models.build("ssd-small", num_classes=4, image_px=128, box_sizes=sizes) for sizes in ((), (0.05, 0.2, 0.6))
    )
    assert make_anchors(own.levels)[0, 2] == pytest.approx(0.15)
    assert make_anchors(other.levels)[0, 2] == pytest.approx(0.05)
    assert {k: v.shape for k, v in own.state_dict().items()} == {k: v.shape for k, v in other.state_dict().items()}
    for wrong in ((0.1, 0.2), (0.3, 0.2, 0.9), (0.0, 0.2, 0.9), (0.1, 0.2, 1.5)):
        with pytest.raises(ConfigError, match="three rising fractions"):
            models.build("ssd-small", num_classes=4, box_sizes=wrong)
    with pytest.raises(ConfigError, match="has no effect on resnet18"):
        models.build("resnet18", num_classes=4, box_sizes=(0.1, 0.2, 0.9))


def test_width_reaches_the_extra_levels() -> None:
    model = build("ssd300-resnet34", width=16)
    assert model.backbone.conv1.out_channels == 16
    assert [head.in_channels for head in model.loc] == [64, 128, 128, 64, 64, 64]
    assert build("ssd-small", width=8).extras[0][0].out_channels == 16


def test_extra_levels_can_be_padded_as_tensorflows_are() -> None:
    """Theirs halve 38 cells to 19, 10 and 5 with SAME; the backbone pads all sides alike, the last levels none."""
    model, plain = (build("ssd300-resnet34", padding=padding) for padding in ("tf-fixed", "torch"))
    kinds = [type(extra[2]).__name__ for extra in model.extras]
    assert kinds == ["SameConv2d"] * 3 + ["Conv2d"] * 2
    assert type(model.backbone.maxpool).__name__ == "_SamePool"
    assert type(model.backbone.conv1) is nn.Conv2d
    model.load_state_dict(plain.state_dict())
    images = torch.rand(1, 3, 300, 300)
    with torch.inference_mode():
        (boxes, _), (others, _) = (each.eval()(images) for each in (model, plain))
    assert boxes.shape == others.shape
    assert not torch.equal(boxes, others)


# ---- the forward pass -----------------------------------------------------------------------------------------------


def mlperf_forward(state: dict[str, Tensor], x: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """MLPerf's SSD-ResNet34 in evaluation, from its own state dict: (N, 4, A) and (N, classes, A)."""

    def norm(x: Tensor, name: str) -> Tensor:
        parts = (state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts, eps=1e-5)

    def conv(x: Tensor, name: str, stride: int = 1, padding: int = 0) -> Tensor:
        return F.conv2d(x, state[f"{name}.weight"], state.get(f"{name}.bias"), stride, padding)

    def block(x: Tensor, name: str, stride: int) -> Tensor:
        out = F.relu(norm(conv(x, f"{name}.conv1", stride, 1), f"{name}.bn1"))
        out = norm(conv(out, f"{name}.conv2", 1, 1), f"{name}.bn2")
        if f"{name}.downsample.0.weight" in state:
            x = norm(conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
        return F.relu(out + x)

    x = F.relu(norm(conv(x, "model.layer1.0", 2, 3), "model.layer1.1"))
    x = F.max_pool2d(x, 3, 2, 1)
    for name, count, stride in (("model.layer1.4", 3, 1), ("model.layer1.5", 4, 2), ("model.layer2.0", 6, 1)):
        for index in range(count):
            x = block(x, f"{name}.{index}", stride if index == 0 else 1)
    features = [x]
    for index, (stride, padding) in enumerate([(2, 1), (2, 1), (2, 1), (1, 0), (1, 0)]):
        x = F.relu(conv(x, f"additional_blocks.{index}.0"))
        x = F.relu(conv(x, f"additional_blocks.{index}.2", stride, padding))
        features.append(x)
    loc = [conv(f, f"loc.{k}", 1, 1).view(len(f), 4, -1) for k, f in enumerate(features)]
    conf = [conv(f, f"conf.{k}", 1, 1).view(len(f), classes, -1) for k, f in enumerate(features)]
    return torch.cat(loc, 2), torch.cat(conf, 2)


def to_mlperf(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names to theirs, the other way round from what is tested."""
    stages = {"conv1": "layer1.0", "bn1": "layer1.1", "layer1": "layer1.4", "layer2": "layer1.5", "layer3": "layer2.0"}
    renamed = {}
    for name, tensor in state.items():
        part, rest = name.split(".", 1)
        if part == "backbone":
            stage, rest = rest.split(".", 1)
            renamed[f"model.{stages[stage]}.{rest}"] = tensor
        else:
            renamed[("additional_blocks" if part == "extras" else part) + "." + rest] = tensor
    return renamed


def to_nvidia(state: dict[str, Tensor]) -> dict[str, Tensor]:
    stages = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6}
    theirs = to_mlperf(state)
    backbone = {name: tensor for name, tensor in state.items() if name.startswith("backbone.")}
    heads = {name: tensor for name, tensor in theirs.items() if not name.startswith("model.")}
    places = {name: name.split(".", 2) for name in backbone}
    prefix = "feature_extractor.feature_extractor"
    return {f"{prefix}.{stages[s]}.{rest}": backbone[name] for name, (_, s, rest) in places.items()} | heads


def randomised(name: str, **options: object) -> Ssd:
    torch.manual_seed(0)
    model = build(name, **{"width": 8, **options}).double().eval()
    for key, value in model.state_dict().items():
        if "running_var" in key:
            value.uniform_(0.5, 1.5)
        elif "running_mean" in key:
            value.normal_(0, 0.2)
    return model


def test_mlperf_weights_give_mlperfs_boxes() -> None:
    trained = randomised("ssd300-resnet34")
    theirs = to_mlperf(trained.state_dict())
    fresh = build("ssd300-resnet34", width=8).double().eval()
    fitted, report = weights.adapt(theirs, fresh)
    fresh.load_state_dict(fitted)
    assert report.source == "mlperf-ssd"
    assert not report.dropped
    assert not report.missing
    images = torch.randn(2, 3, 300, 300, dtype=torch.float64)
    with torch.no_grad():
        loc, conf = mlperf_forward(theirs, images, 5)
        offsets, logits = fresh(images)
    torch.testing.assert_close(offsets, loc.transpose(1, 2), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(logits, conf.transpose(1, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("source", "name", "rename"),
    [
        ("mlperf-ssd", "ssd300-resnet34", to_mlperf),
        ("nvidia-ssd", "ssd300-resnet50", to_nvidia),
        ("nvidia-ssd", "ssd300-resnet18", to_nvidia),
        ("vernier-ssd", "ssd-small", dict),
    ],
)
def test_names_go_there_and_back(
    source: str, name: str, rename: Callable[[dict[str, Tensor]], dict[str, Tensor]], tmp_path: Path
) -> None:
    state = build(name, width=8).state_dict()
    theirs = {f"module.{key}": value for key, value in rename(state).items()}
    assert weights.identify(theirs) == name
    torch.save({"model": theirs, "label_map": {1: "person"}}, tmp_path / "iter_1.pt")
    model = build(name, width=8)
    assert weights.load(tmp_path / "iter_1.pt", model).source == source
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())
    other = build(name, width=8)
    assert weights.load_backbone(tmp_path / "iter_1.pt", other).source == source
    assert torch.equal(other.state_dict()["backbone.layer3.0.conv1.weight"], state["backbone.layer3.0.conv1.weight"])
    assert not torch.equal(other.state_dict()["loc.0.weight"], state["loc.0.weight"])


@pytest.mark.parametrize(("name", "backbone"), [("ssd300-resnet34", "resnet34"), ("ssd300-resnet50", "resnet50")])
def test_a_classifiers_weights_start_the_backbone(name: str, backbone: str, tmp_path: Path) -> None:
    classifier = models.build(backbone, num_classes=7, width=8)
    assert isinstance(classifier, ResNet)
    torch.save(classifier.state_dict(), tmp_path / "w.pth")
    detector = build(name, width=8)
    report = weights.load_backbone(tmp_path / "w.pth", detector)
    assert report.source == "torchvision"
    assert {name.split(".")[0] for name in report.dropped} == {"layer4", "fc"}
    ours, theirs = detector.backbone.state_dict(), classifier.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    with pytest.raises(ValueError, match="weights of a classifier") as error:
        weights.load(tmp_path / "w.pth", detector)
    assert error.value.works == [("model.backbone_weights", None)]


def test_a_backbone_of_the_other_stride_is_refused() -> None:
    state, v1 = models.build("resnet50", num_classes=7, width=8).state_dict(), build("ssd300-resnet50-v1", width=8)
    optional = ("layer4.", "fc.")
    _, report = weights.adapt(state, v1.backbone, optional=optional)
    assert report.notes == ("assumed to be v1: names and shapes do not tell v1 from v1.5",)
    with pytest.raises(ValueError, match=r"backbone of ssd300-resnet50-v1 is v1.* Use ssd300-resnet50\."):
        weights.adapt(state, v1.backbone, optional=optional, metadata={"model": "resnet50"})
    with pytest.raises(ValueError, match=r"do not fit the backbone of ssd300-resnet34.* look like resnet50"):
        weights.adapt(state, build("ssd300-resnet34", width=8).backbone, optional=optional)


def test_another_number_of_classes_needs_new_class_heads() -> None:
    theirs = to_mlperf(build("ssd300-resnet34", num_classes=81, width=8).state_dict())
    model = build("ssd300-resnet34", num_classes=4, width=8)
    with pytest.raises(ValueError, match="81 classes, the background among them, and the model has 4") as error:
        weights.adapt(theirs, model)
    assert ("model.reset_head", True) in error.value.works
    fitted, report = weights.adapt(theirs, model, reset_head=True)
    assert torch.equal(fitted["loc.0.weight"], theirs["loc.0.weight"])
    assert torch.equal(fitted["conf.0.weight"], model.state_dict()["conf.0.weight"])
    assert {name.split(".")[0] for name in report.missing} == {"conf"}


# ---- use ------------------------------------------------------------------------------------------------------------


def test_own_layers_are_xavier_and_the_backbone_is_he() -> None:
    torch.manual_seed(1)
    model = build("ssd300-resnet34", num_classes=81)
    head, block = model.conf[0].weight, model.backbone.get_parameter("layer3.0.conv2.weight")
    bound = math.sqrt(6 / (256 * 9 + 4 * 81 * 9))
    assert head.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert head.var().item() == pytest.approx(bound**2 / 3, rel=0.02)
    assert block.var().item() == pytest.approx(2 / (256 * 9), rel=0.02)
    assert model.conf[0].bias.any()


def test_default_boxes_are_not_saved() -> None:
    assert not [name for name in build("ssd-small").state_dict() if "anchors" in name]


@pytest.mark.parametrize("width", [8, 16])
def test_channels_last_gives_the_same_and_trains(width: int) -> None:
    torch.manual_seed(0)
    model, images = build("ssd-small", width=width).train(), torch.randn(2, 3, 128, 128)
    offsets, logits = model(images)
    model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    again = model(images)
    torch.testing.assert_close(again[0], offsets, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(again[1], logits, rtol=1e-3, atol=1e-4)
    (again[0].square().sum() + again[1].square().sum()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_traces_and_compiles() -> None:
    model, images = build("ssd-small", width=8).eval(), torch.randn(2, 3, 128, 128)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for given, own in zip(compiled(images), model(images), strict=True):
        torch.testing.assert_close(given, own)
    traced, images = (
        torch.jit.trace(model, images),
        torch.randn(5, 3, 128, 128),
    )  # another batch than it was traced with
    for given, own in zip(traced(images), model(images), strict=True):
        torch.testing.assert_close(given, own)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build("ssd300-resnet34", image_px=16), "16 pixels are too small.*at least 17"),
        (lambda: build("ssd-small")(torch.zeros(1, 3, 128, 96)), "built for images of 128x128 pixels and got 128x96"),
        (lambda: models.build("resnet18", num_classes=3, image_px=64), "image_px = 64 has no effect on resnet18"),
        (lambda: models.build("ssd300-resnet43", num_classes=3), "ssd300-resnet34"),
    ],
)
def test_wrong_requests_say_what_would_work(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
