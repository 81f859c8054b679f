"""Models against an independent implementation; options, tracing and compiling of residual ones."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.reference_nets import NETWORKS, Network, imagenet_bottleneck, small_images
from tests.models.small_networks import CLASSIFIERS
from vernier import models
from vernier.models import Options
from vernier.models.catalogue import build
from vernier.models.drop_path import DropPath
from vernier.models.resnet import Arch, BlurConv2d, ResNet, SameConv2d


def randomise(model: ResNet) -> ResNet:
    """Make every tensor matter: batch norms away from identity, in double precision."""
    torch.manual_seed(0)
    for module in model.double().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.3, 0.9)
            module.bias.data.normal_(0, 0.2)
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    for name, parameter in model.named_parameters():
        if name.endswith("layer_scale"):
            parameter.data.uniform_(0.3, 0.9)
    return model


def randomised(name: str) -> ResNet:
    torch.manual_seed(0)
    return randomise(models.build(name, num_classes=7))


def relative_error(given: Tensor, wanted: Tensor) -> float:
    assert torch.isfinite(wanted).all()
    return float((given - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("name", [entry.name for entry in CLASSIFIERS])
def test_agrees_with_the_independent_implementation(name: str) -> None:
    model = randomised(name).eval()
    images = torch.randn(2, 3, 33, 33, dtype=torch.float64)  # odd at every stage, so that padding shows
    with torch.no_grad():
        wanted = NETWORKS[name](model.state_dict(), images, False)
        assert relative_error(model(images), wanted) < 1e-9


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50", "resnet50-v1", "resnet20-cifar", "resnet8-small", "airbench94", "convnext-tiny"]
)
def test_agrees_in_training_mode(name: str) -> None:
    model = randomised(name).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.randn(4, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert relative_error(model(images), NETWORKS[name](before, images, True)) < 1e-9


@pytest.mark.parametrize(
    ("arch", "reference"),
    [
        (Arch(block="basic", blocks=(1, 1, 1), width=16, stem="small", shortcut="pad"), small_images(1, "A")),
        (Arch(block="bottleneck", blocks=(2, 1), stride_in="1x1"), imagenet_bottleneck((2, 1), v1=True)),
        (
            Arch(block="bottleneck", blocks=(1, 2), groups=32, group_width=4, squeeze=16),
            imagenet_bottleneck((1, 2), groups=32),
        ),
    ],
    ids=["pad", "v1", "se-resnext"],
)
def test_gradients_agree(arch: Arch, reference: Network) -> None:
    """In-place operations must not disturb what the backward pass needs."""
    model = randomise(ResNet(arch, Options(num_classes=7))).train()
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    leaves = {key: value.clone().requires_grad_(value.is_floating_point()) for key, value in model.state_dict().items()}
    model(images).square().sum().backward()
    reference(leaves, images, True).square().sum().backward()
    for key, parameter in model.named_parameters():
        given, wanted = parameter.grad, leaves[key].grad
        assert given is not None
        assert wanted is not None
        assert relative_error(given, wanted) < 1e-9


def test_v1_and_v15_differ_only_in_stride() -> None:
    v1, v15 = randomised("resnet50-v1").eval(), randomised("resnet50").eval()
    v1.load_state_dict(v15.state_dict())
    images = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    assert not torch.allclose(v1(images), v15(images))
    strides = {n: m.stride[0] for n, m in v1.named_modules() if isinstance(m, nn.Conv2d) and m.stride[0] > 1}
    assert strides == {
        "conv1": 2,
        **{f"layer{n}.0.conv1": 2 for n in (2, 3, 4)},
        **{f"layer{n}.0.downsample.0": 2 for n in (2, 3, 4)},
    }


def test_names_are_torchvisions() -> None:
    keys = set(models.build("resnet50", num_classes=1000).state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer4.2.bn3.bias", "fc.bias"} <= keys
    assert {"layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_mean"} <= keys
    assert len(keys) == 320
    first = [key for key in models.build("resnet18", num_classes=2).state_dict() if key.startswith("layer2.0.")]
    assert [key.split(".")[2] for key in first if key.endswith(".weight")] == ["conv1", "bn1", "conv2", "bn2"] + [
        "downsample"
    ] * 2
    cifar = set(models.build("resnet20-cifar", num_classes=10).state_dict())
    assert {"conv1.weight", "layer3.2.bn2.weight", "fc.weight"} <= cifar
    assert not any("downsample" in key for key in cifar)


def test_small_stem_keeps_resolution_and_pools_nothing() -> None:
    model = models.build("resnet18", num_classes=5, stem="small", in_channels=1)
    assert model.conv1.weight.shape == (64, 1, 3, 3)
    features = model.stages[0](model.maxpool(model.bn1(model.conv1(torch.zeros(1, 1, 20, 20)))))
    assert features.shape[2:] == (20, 20)
    assert models.build("resnet8-small", num_classes=5, stem="imagenet").conv1.weight.shape == (16, 3, 7, 7)
    pooled = models.build("resnet8-small", num_classes=5, stem="small-pool")
    assert pooled.conv1.weight.shape == (16, 3, 3, 3)
    assert pooled.maxpool(torch.zeros(1, 16, 28, 28)).shape[-2:] == (14, 14)


def test_width_scales_every_stage() -> None:
    model = models.build("resnet8-small", num_classes=5, width=24)
    assert [model.get_parameter(f"layer{n}.0.conv1.weight").shape[0] for n in (1, 2, 3)] == [24, 48, 96]
    assert model.fc.in_features == 96
    half = models.build("resnext50-32x4d", num_classes=5, width=32)
    assert half.get_parameter("layer1.0.conv2.weight").shape == (64, 2, 3, 3)


@pytest.mark.parametrize(("name", "factor"), [("resnet18", 1), ("resnet50", 4), ("resnext50-32x4d", 4)])
def test_a_bottleneck_has_four_times_the_channels_of_its_stage(name: str, factor: int) -> None:
    model = models.build(name, num_classes=2, width=32).eval()
    outputs = [model.stages[0](torch.zeros(1, 32, 8, 8))]
    outputs.append(model.stages[1](outputs[0]))
    assert [output.shape[1] for output in outputs] == [32 * factor, 64 * factor]


@pytest.mark.parametrize(
    ("init", "variance"),
    [("fan-out", 2 / (128 * 9)), ("fan-in", 2 / (64 * 9)), ("tf", 1 / (64 * 9))],
)
def test_initial_variance_of_convolutions(init: str, variance: float) -> None:
    torch.manual_seed(1)
    weight = models.build("resnet18", num_classes=2, init=init).get_parameter("layer2.0.conv1.weight")
    assert weight.var().item() == pytest.approx(variance, rel=0.02)
    bound = 2 * math.sqrt(variance) / 0.87962566103423978
    assert (weight.abs().max().item() <= bound) == (init == "tf")


def test_zero_gamma_makes_fresh_blocks_the_identity() -> None:
    model = models.build("resnet50", num_classes=2, zero_gamma=True)
    assert all(not model.get_parameter(f"layer{n}.0.bn3.weight").any() for n in (1, 2, 3, 4))
    assert model.get_parameter("layer1.0.bn2.weight").eq(1).all()
    x = torch.rand(1, 256, 4, 4)
    torch.testing.assert_close(model.get_submodule("layer1.1").eval()(x), x)


def test_drop_path_grows_linearly_to_the_last_block() -> None:
    model = models.build("resnet14-small", num_classes=2, drop_path=0.3)
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25, 0.3])


def test_blurpool_blurs_where_ffcv_does() -> None:
    model = models.build("resnet50", num_classes=2, blurpool=True)
    blurred = [name for name, module in model.named_modules() if isinstance(module, BlurConv2d)]
    assert blurred == [f"layer{n}.0.{where}" for n in (2, 3, 4) for where in ("conv2", "downsample.0")]
    assert set(model.state_dict()) == set(models.build("resnet50", num_classes=2).state_dict())


def test_blur_is_a_binomial_average() -> None:
    conv = BlurConv2d(16, 16, 1, stride=2, bias=False)
    conv.weight.data.copy_(torch.eye(16)[:, :, None, None])
    point = torch.zeros(1, 16, 8, 8)
    point[:, :, 4, 4], point[:, :, 1, 1] = 16.0, 16.0
    out = conv(point)
    assert out[0, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 4, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(("side", "kernel", "first"), [(224, 7, -2), (112, 3, 0), (9, 3, -1), (19, 3, -1), (38, 1, 0)])
def test_tensorflows_padding_puts_more_at_the_right_and_bottom(side: int, kernel: int, first: int) -> None:
    """By TensorFlow's rule: windows begin at `first`, every second pixel; torch's would begin at -(kernel // 2)."""
    conv = SameConv2d(1, 1, kernel, stride=2, bias=False)
    conv.weight.data.fill_(1.0)
    image = torch.rand(1, 1, side, side, dtype=torch.float64)
    out = conv.double()(image).detach()
    assert out.shape[2:] == (math.ceil(side / 2),) * 2
    for row, column in ((0, 0), (0, out.shape[3] - 1), (out.shape[2] - 1, 1)):
        top, left = first + 2 * row, first + 2 * column
        window = image[0, 0, max(0, top) : top + kernel, max(0, left) : left + kernel]
        assert float(out[0, 0, row, column]) == pytest.approx(float(window.sum()))


def test_padding_changes_strided_layers_alone() -> None:
    def kinds(padding: str) -> dict[str, type[nn.Module]]:
        model = models.build("resnet50", num_classes=2, padding=padding)
        return {name: type(module) for name, module in model.named_modules()}

    plain = kinds("torch")
    changed = {padding: [n for n, kind in kinds(padding).items() if kind != plain[n]] for padding in ("tf", "tf-fixed")}
    strided = [f"layer{n}.0.conv2" for n in (2, 3, 4)]
    assert changed == {"tf": ["conv1", "maxpool", *strided], "tf-fixed": ["maxpool"]}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["resnet20-cifar", "resnet8-small", "resnet50-v1", "convnext-tiny"])
def test_traces(name: str) -> None:
    model = models.build(name, num_classes=3).eval()
    images = torch.randn(2, 3, 32, 32)
    traced = torch.jit.trace(model, images)
    other = torch.randn(5, 3, 64, 64)  # another batch and size: nothing was frozen into the trace
    torch.testing.assert_close(traced(other), model(other))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet8-small", {"drop_path": 0.2, "blurpool": True}), ("convnext-tiny", {"drop_path": 0.2})],
)
def test_compiles_without_a_graph_break(name: str, options: dict[str, Any], training: bool) -> None:
    model = models.build(name, num_classes=3, width=16, **options).train(training)
    images = torch.randn(2, 3, 32, 32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.manual_seed(3)
    wanted = model(images)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(images), wanted)


def test_a_strided_shortcut_of_eight_channels_can_be_trained() -> None:
    """`finetune --set model.width=8` ended in PyTorch's backward pass: memory of such a layer was overwritten."""
    torch.manual_seed(0)
    layer: Any = build("resnet18", width=8, num_classes=2)
    layer = layer.layer2[0].downsample[0]
    images, plain = torch.randn(8, 8, 64, 64), torch.nn.Conv2d(8, 16, 1, stride=2, bias=False)
    plain.load_state_dict(layer.state_dict())
    gradients = []
    for conv, layout in ((layer, torch.channels_last), (plain, torch.contiguous_format)):
        given = images.clone(memory_format=layout).requires_grad_()
        conv.to(memory_format=layout)(given).square().sum().backward()
        gradients += [given.grad, conv.weight.grad]
    torch.testing.assert_close(gradients[:2], gradients[2:], rtol=1e-4, atol=1e-3)
