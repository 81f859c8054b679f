"""Whether the compiled library is there, for tests that need it or the restart markers that it writes."""

from collections.abc import Callable

import pytest

from vernier.data.decoding.jpeg_slicing import Segments
from vernier.kernels.library import PATH

AddMarkers = Callable[[bytes], tuple[bytes, Segments]]
needs_library = pytest.mark.skipif(
    not PATH.exists(), reason=f"{PATH.name} is not built: python setup.py build_ext --inplace, with a C++ compiler"
)
