"""TODO."""

from vernier.data.shapes.files import ShapesSpec, cached, make

__all__ = ["ShapesSpec", "cached", "make"]
