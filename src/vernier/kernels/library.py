"""The compiled library of this package: a file that wheels contain, and that an installation from source compiles.

setup.py builds it, with a copy of every function per instruction set; the processor decides which one is called.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch  # noqa: F401 (brings libgomp.so.1 along, which the library needs and a machine may lack)

from vernier.errors import ConfigError
from vernier.references import given, use

PATH = Path(__file__).with_name("libkernels.so")


class NeededBy(NamedTuple):
    """The setting that needs a function of the library, and its value that works without."""

    setting: str
    value: str | bool
    otherwise: str | bool


def load_function(name: str, *arguments: Any, returns: Any = ctypes.c_int, by: NeededBy) -> Callable[..., Any]:
    """A function of the library, for this processor. Raises ConfigError, with the reason and what works, if the library
    is missing or of another version."""
    try:
        library = _load_library(PATH)
        function = library[f"{name}_{_choose_level(library)}"]
    except (OSError, AttributeError) as error:
        raise ConfigError(
            f"{given(by.setting, by.value)} needs the compiled part of Vernier, which cannot be loaded ({error}). "
            "Install a wheel of Vernier, or install it again where there is a C++ compiler (g++), or use "
            f"{use(by.setting, by.otherwise)}."
        ) from None
    # Without types, ctypes passes integers as 32 bits and cuts pointers off.
    function.argtypes, function.restype = arguments, returns
    return function


@cache
def _load_library(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def _choose_level(library: ctypes.CDLL) -> str:
    library.kernels_level.restype = ctypes.c_char_p
    return str(library.kernels_level(), "ascii")
