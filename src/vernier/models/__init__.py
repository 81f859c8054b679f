"""Models: how they are described (`architecture`), named (`catalogue`) and built (`resnet`, `airbench`, `ssd`), what
they cost (`cost`), and third-party weights files (`weights`, `naming`, `stride_check`).

May import `config`, `store`, `errors` and nothing above them. Loss, metric and boxes are in `tasks`; starting a
training from a weights file is in `engine.starting_weights`.
"""

from .architecture import Arch, Options
from .catalogue import ModelInfo, build, describe, info, is_detector, layer_groups, names, shown_name, ssd_spec

__all__ = [
    "Arch",
    "ModelInfo",
    "Options",
    "build",
    "describe",
    "info",
    "is_detector",
    "layer_groups",
    "names",
    "shown_name",
    "ssd_spec",
]
