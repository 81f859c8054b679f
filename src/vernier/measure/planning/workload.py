"""Measured training speeds as the basis of estimates: from a run directory, or from a number that the user gives."""

from pathlib import Path

from vernier.config import Config, Model, Recipe, config_from_tree
from vernier.errors import ConfigError
from vernier.models.cost import cost_of
from vernier.store import RunDir

from .estimate import Speed, gmac
from .plan import Workload


def read_measured_run(path: Path) -> tuple[str, Config, float]:
    """Name, configuration and measured images per second per device of a run. ConfigError if it is none or has none."""
    run = RunDir.open(path)
    summary = run.status().summary
    if summary is None or summary.training is None:
        raise ConfigError(f"{path} has no measured training speed yet. Let the run finish, or give images per second.")
    return run.path.name, config_from_tree(run.read_config()), summary.training.images_per_s_per_device


def image_gmac(recipe: Recipe) -> float:
    """Forward multiply-accumulates of one training image of a recipe, in 1e9."""
    return gmac(recipe.model, recipe.data.image_px, len(recipe.data.mean))


def workload_of(recipe: Recipe, run_or_rate: str, batch: int) -> tuple[Workload, str]:
    """What one device does per step of a recipe, and the basis of its speed in words.

    `run_or_rate` is a run directory or images per second; `batch` is the batch per device of the latter. The speed of
    another model or image size is scaled by multiply-accumulates.
    """
    spec = recipe.model
    try:
        rate = float(run_or_rate)
        basis = f"{rate:g} img/s of one device, as given"
    except ValueError:
        name, config, rate = read_measured_run(Path(run_or_rate))
        measured, machine = config.recipe, config.machine
        if (measured.model, measured.data.image_px) != (spec, recipe.data.image_px):
            rate *= image_gmac(measured) / image_gmac(recipe)
        batch = measured.global_batch // machine.procs // machine.accumulation
        basis = f"{rate:,.1f} img/s per device, from {name} ({machine.procs} process(es))"
    if not 0 < rate < float("inf"):
        raise ConfigError(f"--bench {rate:g} must be more than 0.")
    parameters = cost_of(spec, px=recipe.data.image_px, channels=len(recipe.data.mean)).params
    return Workload(images_per_s=rate, measured_batch=batch, gradient_bytes=4 * parameters), basis


def speed_of(run_or_rate: str) -> tuple[Speed, str]:
    """The speed of a device, and its basis in words. A number is images per second of ResNet-50 at 224 pixels."""
    try:
        rate = float(run_or_rate)
    except ValueError:
        name, config, rate = read_measured_run(Path(run_or_rate))
        network = f"{config.recipe.model.name} at {config.recipe.data.image_px} px"
        basis = f"{rate:,.0f} img/s per device of {network} in {name}"
        return Speed(images_per_s=rate, gmac=image_gmac(config.recipe)), basis
    if not 0 < rate < float("inf"):
        raise ConfigError(f"--device-hours {run_or_rate}: images per second must be more than 0.")
    reference = gmac(Model(name="resnet50", num_classes=1000), 224)
    return Speed(images_per_s=rate, gmac=reference), f"{rate:g} img/s of ResNet-50 at 224 px"
