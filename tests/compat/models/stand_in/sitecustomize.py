"""Lets every process that has this folder on PYTHONPATH import torchvision next to any PyTorch.

Python imports it at its start. The operators are declared only when torchvision is imported: most processes need not
load PyTorch.
"""

import importlib.util
import sys
from pathlib import Path


class _BeforeTorchvision:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            file = Path(__file__).parents[1] / "torchvision_operators.py"
            spec = importlib.util.spec_from_file_location("tests.compat.models.torchvision_operators", file)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


sys.meta_path.insert(0, _BeforeTorchvision())
