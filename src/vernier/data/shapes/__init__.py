"""The built-in data set: rendered scenes of ten shapes, for classification and detection.

`spec` describes a set, `outlines` has the shapes, `layout` decides where they lie, `paint` draws an image and `files`
writes the set to disk. May import nothing else of `data` and no torch; `data.sources` reads the files back.
"""

from vernier.data.shapes.files import make_cached_shapes, make_shapes
from vernier.data.shapes.outlines import CLASSES
from vernier.data.shapes.paint import render
from vernier.data.shapes.spec import SPLITS, ShapesSpec

__all__ = ["CLASSES", "SPLITS", "ShapesSpec", "make_cached_shapes", "make_shapes", "render"]
