import pytest
import torch
from torch import nn

from vernier.engine.execution import _traced
from vernier.models import build
from vernier.models.drop_path import DropPath, PathMasks
from vernier.torch_private import compiler_counters

CPU = torch.device("cpu")


def paths_of(model: nn.Module) -> list[DropPath]:
    return [module for module in model.modules() if isinstance(module, DropPath)]


def test_drop_path_zeroes_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(2)
    layer, x = DropPath(0.25), torch.ones(20_000, 2, 1, 1)
    dropped = layer(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (dropped[:, 0] == dropped[:, 1]).all()
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert layer.eval()(x) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masks_are_what_each_layer_would_draw_in_the_forward_pass(dtype: torch.dtype) -> None:
    """What a seed meant before masks were drawn ahead: one draw after another from a generator with this seed."""
    layers = nn.Sequential(DropPath(0.1), DropPath(0.0), DropPath(0.45), DropPath(0.7))
    PathMasks(layers, 64, CPU).draw(123456789)
    torch.default_generator.manual_seed(123456789)
    for layer in paths_of(layers):
        keep, x = 1.0 - layer.rate, torch.ones(64, 3, 2, 2, dtype=dtype)
        expected = x if keep == 1.0 else x * x.new_empty(64, 1, 1, 1).bernoulli_(keep).div_(keep)
        assert layer(x).dtype == dtype
        assert torch.equal(layer(x), expected)


def test_drawing_ahead_touches_no_other_generator_and_depends_on_the_seed_only() -> None:
    model = build("resnet14-small", num_classes=2, width=8, drop_path=0.5)
    masks, images = PathMasks(model, 8, CPU), torch.randn(8, 3, 32, 32)
    state = torch.get_rng_state()
    outputs = []
    for seed in (1, 2, 1):
        masks.draw(seed)
        outputs.append(model(images))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])


def test_frozen_layers_draw_nothing() -> None:
    layers, alone = nn.Sequential(DropPath(0.5), DropPath(0.5)), nn.Sequential(DropPath(0.5))
    layers[0].eval()
    for part in (layers, alone):
        PathMasks(part, 32, CPU).draw(7)
    x = torch.ones(32, 1, 1, 1)
    assert torch.equal(layers(x), alone(x))


def test_masks_are_no_part_of_the_state_and_no_views_which_rgpu_cannot_compile() -> None:
    model = build("resnet8-small", num_classes=2, width=8, drop_path=0.5)
    before = list(model.state_dict())
    PathMasks(model, 4, CPU)
    assert list(model.state_dict()) == before
    assert not any(layer.mask._is_view() for layer in paths_of(model) if layer.mask is not None)


def test_new_masks_reach_compiled_and_traced_networks_without_compiling_again() -> None:
    torch.manual_seed(0)
    model = build("resnet8-small", num_classes=3, width=8, drop_path=0.6)
    masks, images = PathMasks(model, 6, CPU), torch.randn(6, 3, 32, 32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    recorded = _traced(model, images, torch.no_grad, training=True)
    graphs = []
    for seed in range(4):
        masks.draw(seed)
        expected = model(images)
        torch.testing.assert_close(compiled(images), expected)
        torch.testing.assert_close(recorded(images), expected)
        graphs.append(compiler_counters()[0])
    assert graphs == [graphs[0]] * 4
