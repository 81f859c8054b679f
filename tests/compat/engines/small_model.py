"""Small models with statistics as after a training, for the tests of engines: no training, no files."""

from pathlib import Path

import torch
from torch import nn

from tests.tiny_training import tiny_config, tiny_detector_config
from vernier.config import Config, override
from vernier.devices.cpu import Cpu
from vernier.engine.build import build_model
from vernier.engine.inference.trained import Trained
from vernier.tasks import task_of


def small_model(data: Path, *, detector: bool = False, **machine: object) -> Trained:
    """An untrained model for the classes of the data, with these settings of the machine."""
    config: Config = tiny_detector_config(data) if detector else tiny_config(data)
    for name, value in machine.items():
        config = override(config, f"machine.{name}", value)
    task = task_of(config.recipe)
    classes = tuple(task.open("val").classes)
    model = build_model(config, task.outputs(len(classes)), 3, torch.device("cpu"))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return Trained(
        model=model.eval(),
        config=config,
        classes=classes,
        device=Cpu(),
        origin="here",
        step=None,
        averaged=False,
        channels=3,
    )
