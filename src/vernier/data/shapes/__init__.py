"""The built-in data set: rendered scenes of ten shapes, for classification and detection.

`spec` describes a set, `outlines` has the shapes, `drawing` draws an image and `files` writes the set to
disk. May import nothing else of `data` and no torch; `data.sources` reads the files back.
"""

from .drawing import render
from .files import make_cached_shapes, make_shapes
from .outlines import CLASSES
from .spec import SPLITS, ShapesSpec

__all__ = ["CLASSES", "SPLITS", "ShapesSpec", "make_cached_shapes", "make_shapes", "render"]
