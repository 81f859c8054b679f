"""What recipes would cost on a device, from a training run that was measured there, or from one number."""

from collections.abc import Callable, Sequence
from pathlib import Path

from vernier.config import Config, Model, Recipe, from_dict
from vernier.errors import ConfigError
from vernier.measure.planning.estimate import Speed, device_hours, gmac
from vernier.store import RunDir

_REFERENCE = Model(name="resnet50", num_classes=1000)
_REFERENCE_PX = 224


def estimated_hours(
    recipes: Sequence[Recipe], train_images: Callable[[Recipe], int], given: str
) -> tuple[list[float], str]:
    """Device hours of each recipe, and on what they rest. `given` is a run directory, or images a second of ResNet-50."""
    speed, basis = _speed(given)
    hours = [device_hours(recipe, train_images(recipe), speed) for recipe in recipes]
    return hours, f"{basis}, scaled by multiply-accumulates; training steps only, no evaluation, no scaling losses"


def _speed(given: str) -> tuple[Speed, str]:
    try:
        rate = float(given)
    except ValueError:
        return _measured(Path(given))
    if not 0 < rate < float("inf"):
        raise ConfigError(f"--device-hours {given}: images a second must be more than 0.")
    return Speed(images_per_s=rate, gmac=gmac(_REFERENCE, _REFERENCE_PX)), f"{rate:g} img/s of ResNet-50 at 224 px"


def _measured(path: Path) -> tuple[Speed, str]:
    run = RunDir.open(path)
    training = (run.read_status().get("summary") or {}).get("training")
    if not training:
        raise ConfigError(f"{path} has no measured training speed yet. Let the run finish, or give images a second.")
    recipe = from_dict(Config, run.read_config()).recipe
    rate = training["images_per_s_per_device"]
    each = gmac(recipe.model, recipe.data.image_px, len(recipe.data.mean))
    where = f"{rate:,.0f} img/s a device of {recipe.model.name} at {recipe.data.image_px} px in {path.name}"
    return Speed(images_per_s=rate, gmac=each), where
