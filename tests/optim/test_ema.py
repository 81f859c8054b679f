import pytest
import torch
from torch import nn

from vernier.config import Ema
from vernier.optim.ema import WeightAverage


def test_moving_average_with_warmup() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    average = WeightAverage(model, Ema(decay=0.5, warmup=True))
    expected = float(model[0].weight.detach())  # type: ignore[arg-type]
    for step in range(1, 30):
        with torch.no_grad():
            model[0].weight.fill_(step)  # type: ignore[operator]
            model[1].running_mean.fill_(step)  # type: ignore[operator]
            model[1].num_batches_tracked.fill_(step)  # type: ignore[operator]
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert float(average.tensors["0.weight"]) == pytest.approx(expected, rel=1e-5)
    assert int(average.tensors["1.num_batches_tracked"]) == 29
    assert float(average.tensors["1.running_mean"]) > 27


def test_the_average_is_updated_every_few_steps_and_copies_at_first() -> None:
    """torchvision's: every so many steps of an epoch, copies while the rate warms up."""
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, Ema(decay=0.5, warmup=False, every_steps=3, copy_epochs=1), steps_per_epoch=4)
    values = []
    for step in range(1, 9):
        with torch.no_grad():
            model.weight.fill_(step)
        average.update(step)
        values.append(float(average.tensors["weight"]))
    assert values == [1, 1, 1, 4, 4.5, 4.5, 4.5, 6.25]
