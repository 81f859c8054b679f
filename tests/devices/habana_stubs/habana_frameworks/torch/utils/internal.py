"""`torch/utils/internal.py`. The default was lazy mode in 1.19; later releases changed it (docs.habana.ai)."""

import os


def is_lazy() -> bool:
    return os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"
