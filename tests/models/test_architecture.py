import pytest

from vernier.models import info


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet34", "resnet50", "resnet152", "resnext101-32x8d", "resnet110-cifar"]
)
def test_the_depth_is_the_number_in_the_name(name: str) -> None:
    assert f"{info(name).arch.depth}" in name


def test_a_bottleneck_has_four_times_the_channels_of_its_stage() -> None:
    assert (info("resnet50").arch.expansion, info("resnet18").arch.expansion) == (4, 1)


def test_a_detectors_backbone_ends_after_three_stages_and_keeps_the_resolution() -> None:
    arch = info("ssd300-resnet34").arch
    assert (arch.blocks, arch.last_stride) == ((3, 4, 6), 1)
