"""Fixtures of the tests of decoding, for those of the compiled decoder; and the copies of the library's functions."""

import ctypes

import pytest

from tests.data.decoding.conftest import add_markers, sliced_small_images
from vernier.kernels import jpeg, library, restarts, winograd

__all__ = ["add_markers", "level", "sliced_small_images"]

LEVELS = ("plain", "avx2", "avx512")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One copy after the other, as far as this processor can run them."""
    best = library._choose_level(ctypes.CDLL(str(library.PATH)))
    if LEVELS.index(request.param) > LEVELS.index(best):
        pytest.skip(f"this processor has no {request.param}")
    monkeypatch.setattr(library, "_choose_level", lambda loaded: request.param)
    functions = {jpeg: ("_jpeg_window", "_jpeg_chunk"), restarts: ("_jpeg_restarts",), winograd: ("_kernel",)}
    for module, name in ((module, name) for module, names in functions.items() for name in names):
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)  # without the cache of the best copy
    return str(request.param)
