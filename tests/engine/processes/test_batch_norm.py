"""Batch norm over a stated number of images, in one process; over several in test_world."""

import pytest
import torch
from torch import nn

from vernier.config import Config, Derived, derive, override
from vernier.devices.cpu import Cpu
from vernier.engine.processes.batch_norm import _count_batch_norm_images, _GhostBatchNorm, convert_batch_norms
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError


def _configured(setting: int | None, procs: int = 1, batch: int = 16) -> tuple[Config, Derived]:
    config = override(override(Config(), "model.batch_norm_images", setting), "machine.procs", procs)
    config = override(config, "global_batch", batch)
    return config, derive(config, train_samples=1000)


@pytest.mark.parametrize(("setting", "procs", "images"), [(None, 2, 8), (0, 2, 16), (4, 2, 4), (8, 4, 8), (16, 4, 16)])
def test_the_images_per_statistic(setting: int | None, procs: int, images: int) -> None:
    assert _count_batch_norm_images(*_configured(setting, procs)) == images


@pytest.mark.parametrize(("setting", "procs"), [(5, 1), (32, 2), (12, 2), (24, 1)])
def test_a_number_that_does_not_fit_the_processes_is_refused(setting: int, procs: int) -> None:
    with pytest.raises(ConfigError, match=r"model\.batch_norm_images"):
        _count_batch_norm_images(*_configured(setting, procs))


def test_parts_of_a_batch_are_normalised_on_their_own() -> None:
    torch.manual_seed(1)
    images = torch.randn(16, 3, 4, 4)
    plain = nn.Sequential(nn.BatchNorm2d(3))
    ghost = convert_batch_norms(nn.Sequential(nn.BatchNorm2d(3)), *_configured(4), World(Topology()), Cpu())
    assert isinstance(ghost[0], _GhostBatchNorm)  # type: ignore[index]
    expected = torch.cat([plain(part) for part in images.split(4)])
    assert torch.allclose(ghost(images), expected, atol=1e-6)
    assert ghost.state_dict().keys() == plain.state_dict().keys()


def test_running_statistics_are_the_mean_over_the_parts() -> None:
    torch.manual_seed(1)
    images = torch.randn(8, 3, 4, 4)
    ghost = _GhostBatchNorm(nn.BatchNorm2d(3), 4)
    ghost(images)
    means = torch.stack([part.mean((0, 2, 3)) for part in images.split(4)]).mean(0)
    variances = torch.stack([part.transpose(0, 1).reshape(3, -1).var(1) for part in images.split(4)]).mean(0)
    assert ghost.running_mean is not None
    assert ghost.running_var is not None
    assert torch.allclose(ghost.running_mean, 0.1 * means, atol=1e-6)
    assert torch.allclose(ghost.running_var, 0.9 + 0.1 * variances, atol=1e-6)
    ghost.eval()
    assert torch.equal(ghost(images[:1]), ghost(images)[:1])


def test_statistics_of_several_processes_need_eager_mode() -> None:
    config, derived = _configured(0, procs=2)
    config = override(config, "machine.mode", "trace")
    with pytest.raises(ConfigError, match="statistics of several processes") as error:
        convert_batch_norms(nn.Sequential(nn.BatchNorm2d(3)), config, derived, World(Topology(world=2)), Cpu())
    assert error.value.works == [("machine.mode", "eager")]


@pytest.mark.parametrize("procs", [1, 2])
def test_statistics_of_exact_reduction_are_those_of_a_shard_or_a_part_of_it(procs: int) -> None:
    """Also on one process: what is refused does not depend on their number."""

    def images(setting: int | None) -> int:
        config, _ = _configured(setting, procs, batch=24)
        config = override(override(config, "machine.reduction", "exact"), "virtual_shards", 6)
        return _count_batch_norm_images(config, derive(config, train_samples=1000))

    assert [images(setting) for setting in (None, 4, 2, 1)] == [4, 4, 2, 1]
    for setting in (0, 3, 8, 24):
        with pytest.raises(ConfigError, match="each of 6 virtual shards is computed alone, so it must divide their 4"):
            images(setting)
