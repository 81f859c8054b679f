"""`torch/core/__init__.py` and `torch/core/step_closure.py`; Lightning's HPUAccelerator uses `core.is_lazy`, too."""

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: F401

marks: list[str] = []
"""Not Habana's: what the tests look at."""


def mark_step(device_str: str = "", sync: bool = False) -> None:
    """Lazy mode only; has no effect otherwise."""
    marks.append(device_str)
