"""Models: the contract of their families (`contract`), the catalogue (`catalogue`), the families (`resnet`, `convnext`,
`airbench`, `ssd`), what they cost (`cost`, `trace`), and third-party weights files (`weights`, `naming`).

May import `config`, `store`, `errors` and nothing above them. Loss, metric and boxes are in `tasks`; starting a run
from a weights file is in `engine.starting_weights`.
"""

from .catalogue import build, describe, entry_of, info, is_detector, is_outside, names, shown_name
from .contract import ModelInfo, Options

__all__ = [
    "ModelInfo",
    "Options",
    "build",
    "describe",
    "entry_of",
    "info",
    "is_detector",
    "is_outside",
    "names",
    "shown_name",
]
