"""`habana_frameworks/torch/__init__.py`: importing it imports core, hccl and hpu, and so chooses a module."""

from habana_frameworks.torch import core, hpu  # noqa: F401
from habana_frameworks.torch.distributed import hccl  # noqa: F401
