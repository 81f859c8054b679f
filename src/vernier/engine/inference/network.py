"""A network of the catalogue as a plain module, new or with the weights of a file, for as many classes as a user needs.

A model that is used as it was trained, with its classes and its preparation of images, is `trained`'s business.
"""

from pathlib import Path

from torch import nn

from vernier.config import Config
from vernier.engine.build import build_network
from vernier.engine.starting_weights import describe_weights, weights_file
from vernier.errors import ConfigError
from vernier.models import info, is_detector, weights
from vernier.references import given
from vernier.wording import plural

from .model_file import describe
from .preparation import foreign_config
from .trained import Change, config_of_file, head_and_channels


def create_network(
    name: str,
    path: Path | None = None,
    *,
    classes: int | None = None,
    channels: int | None = None,
    changed: Change | None = None,
) -> tuple[nn.Module, str]:
    """The network called `name`, and a note about its weights; `path` is a weights file of Vernier or of others.

    With `path` it has the file's classes and channels; for another number of `classes` its last layer is new. A
    detector has an output for the background besides. Raises ConfigError for an unknown name and for weights of
    another network.
    """
    background = int(is_detector(name))
    if path is None:
        config = _changed(foreign_config(name), changed)
        outputs = info(name).classes if classes is None else classes + background
        return build_network(config.recipe, outputs, channels or 3), ""
    if path.is_dir():
        raise ConfigError(f"{given('weights', path)} is a folder: give a file. Load a run as a model instead.")
    file = weights.read_file(weights_file(str(path)))
    about = describe(file.metadata, path)
    if about is not None and about.model != name:
        raise ConfigError(f"{path} says that it is {about.model}, not {name}.")
    config = _changed(foreign_config(name) if about is None else config_of_file(about, path), changed)
    outputs, own_channels = head_and_channels(file.state, config)
    if channels not in (None, own_channels):
        raise ConfigError(
            f"{path} takes images of {plural(own_channels, 'channel')}, not {channels}. Omit "
            f"{given('in_channels', channels)}."
        )
    own_classes = len(about.classes) if about is not None else outputs - background
    new_head = classes not in (None, own_classes)
    network = build_network(config.recipe, classes + background if classes and new_head else outputs, own_channels)
    report = weights.load_read(file, network, reset_head=new_head)
    return network, describe_weights(str(path), report)


def _changed(config: Config, changed: Change | None) -> Config:
    return config if changed is None else changed(config)
