"""The readers that are fuzzed, by name."""

from . import configs, images, logs, runs, sets, studies, weights
from .base import Target

TARGETS: dict[str, Target] = {
    target.name: target for module in (configs, images, logs, runs, sets, studies, weights) for target in module.TARGETS
}
