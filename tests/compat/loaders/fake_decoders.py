"""What the fakes of other people's decoders share: modules made of their members, and the crops they must get."""

from types import ModuleType
from typing import Any

import numpy as np

from vernier.config import Augment
from vernier.data.augment.crop_flip import augment_rows, random_crop_box


def fake_modules(content: dict[str, dict[str, Any]]) -> dict[str, ModuleType]:
    """Modules with these members, by name."""
    modules = {}
    for name, members in content.items():
        modules[name] = ModuleType(name)
        modules[name].__dict__.update(members)
    return modules


def crop_boxes(indices: np.ndarray, size: int) -> np.ndarray:
    rows = augment_rows(3, 4, indices)
    return np.array([random_crop_box(size, size, Augment(), row) for row in rows])
