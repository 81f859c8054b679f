"""The networks: their names and options, the modules that build them, weights files of others, and what they cost.

May import `config`, `errors` and nothing above them. Loss, metric and boxes are `tasks`; starting a training from a weights
file is `engine.starting_weights`.
"""

from vernier.models.catalogue import (
    Arch,
    Init,
    ModelInfo,
    Options,
    SsdSpec,
    Stem,
    build,
    describe,
    info,
    names,
    ssd_spec,
)

__all__ = [
    "Arch",
    "Init",
    "ModelInfo",
    "Options",
    "SsdSpec",
    "Stem",
    "build",
    "describe",
    "info",
    "names",
    "ssd_spec",
]
