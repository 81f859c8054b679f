"""One test per private name of PyTorch: what a new release must still do."""

import pytest
import torch
from torch.nn import functional as F

from vernier import torch_private

MODES = ["bilinear", "bicubic"]


def _image(height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8, generator=generator)
    return pixels.permute(0, 3, 1, 2)


@pytest.mark.parametrize("mode", MODES)
def test_resize_antialiased_is_interpolate_with_an_output(mode: str) -> None:
    image = _image(37, 53)
    out = torch.empty((1, 16, 24, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    torch_private.resize_antialiased(image, mode, out)
    assert torch.equal(out, F.interpolate(image, size=(16, 24), mode=mode, antialias=True))


@pytest.mark.parametrize("mode", MODES)
def test_resize_each_antialiased_resizes_and_flips_every_image_on_its_own(mode: str) -> None:
    images = [_image(37, 53, 1), _image(16, 16, 2), _image(9, 12, 3), _image(40, 8, 4)]
    flipped = [True, True, True, False]
    out = torch.empty((len(images), 16, 16, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    torch_private.resize_each_antialiased(images, flipped, mode, out)
    for row, image, flip in zip(out, images, flipped, strict=True):
        same_size = image.shape[2:] == (16, 16)
        expected = image if same_size else F.interpolate(image, size=(16, 16), mode=mode, antialias=True)
        assert (row.int() - (expected.flip(3) if flip else expected)[0].int()).abs().max() <= 1


def test_overflows_and_the_scale_are_those_of_the_step_without_reading_them() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for gradient, expected in ((1.0, 0.0), (float("inf"), 1.0)):
        scaler.scale(weight.sum())
        weight.grad = torch.full((2,), gradient)
        scaler.step(optimizer)
        assert torch_private.overflows(scaler, optimizer).item() == expected
        scaler.update()
    assert torch_private.scale_on_device(scaler).item() == scaler.get_scale() == 4.0


def test_foreach_operations_are_those_of_single_tensors() -> None:
    tensors, others = [torch.arange(3.0), torch.ones(2, 2)], [torch.full((3,), 2.0), torch.eye(2)]
    for fast, slow in [
        (
            torch_private.foreach_add(tensors, others, alpha=3),
            [a + 3 * b for a, b in zip(tensors, others, strict=True)],
        ),
        (torch_private.foreach_mul(tensors, 0.5), [a * 0.5 for a in tensors]),
        (torch_private.foreach_norm(tensors), [a.norm() for a in tensors]),
    ]:
        assert all(map(torch.equal, fast, slow))


def test_foreach_operations_with_an_underscore_work_in_place() -> None:
    tensors, others = [torch.arange(3.0)], [torch.full((3,), 2.0)]
    torch_private.foreach_add_(tensors, others)
    torch_private.foreach_mul_(tensors, 2.0)
    torch_private.foreach_sub_(tensors, others)
    assert tensors[0].tolist() == [2.0, 4.0, 6.0]
    torch_private.foreach_lerp_(tensors, others, 0.5)
    assert tensors[0].tolist() == [2.0, 3.0, 4.0]


def test_compiler_counters_count_a_new_graph_and_its_seconds() -> None:
    before = torch_private.compiler_counters()
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    compiled(torch.ones(3))
    after = torch_private.compiler_counters()
    assert after.graphs == before.graphs + 1
    assert after.seconds > before.seconds


def test_patch_inductor_changes_a_setting_while_entered() -> None:
    from torch._inductor import config

    before = config.freezing
    with torch_private.patch_inductor(freezing=not before):
        assert config.freezing is not before
    assert config.freezing is before


def test_a_failure_of_the_compilers_backend_is_recognised() -> None:
    def broken(*_: object) -> None:
        raise ValueError("no compiler here")

    with pytest.raises(Exception, match="no compiler here") as failure:
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(3))  # type: ignore[arg-type]
    assert torch_private.is_compiler_failure(failure.value)
    assert not torch_private.is_compiler_failure(ValueError("another"))
