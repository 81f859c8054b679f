"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured.

    import vernier as v

    run = v.train("shapes-quick", epochs=3)
    run.result.top1
    v.load(run).predict("photo.jpg")

A command `vernier bench infer` is the function `v.bench_infer`. Functions are imported when they are used: `import
vernier` takes milliseconds, and PyTorch comes with the first function that needs it. Everything public is in `__all__`;
`__init__.pyi` has the signatures.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # without `typing`, which takes longer to import than everything else before signals are caught
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

__version__ = "0.4.0.dev0"

_HOMES = {
    "train": "vernier.api.training",
    "explain": "vernier.api.training",
    "Run": "vernier.api.runs",
    "Result": "vernier.api.runs",
    "Events": "vernier.api.runs",
    "open_run": "vernier.api.runs",
    "list_runs": "vernier.api.runs",
    "load": "vernier.api.models",
    "Model": "vernier.api.models",
    "Prediction": "vernier.api.models",
    "create_model": "vernier.api.models",
    "evaluate": "vernier.api.models",
    "predict": "vernier.api.models",
    "export": "vernier.api.models",
    "Export": "vernier.api.models",
    "report": "vernier.api.reports",
    "list_recipes": "vernier.api.catalog",
    "list_models": "vernier.api.catalog",
    "Interrupted": "vernier.api.wording",
    "ConfigError": "vernier.errors",
    "RunFailed": "vernier.errors",
}
"""Where each public name comes from. `report` is also a package, which can be called: see `_Callable`."""


def _public_names() -> dict[str, str]:
    """Every public name, and the module that it comes from: the core's, then those of packages that plug in."""
    from .requests.registry import FUNCTIONS

    return {**FUNCTIONS, **_HOMES}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__all__":
        return ["__version__", *_public_names()]
    if name == "report":
        return import_module("vernier.report")
    # Python asks here before it imports a module of that name, and tools look for many names that begin with an
    # underscore: neither imports anything, so that signals are caught before everything else.
    paths = (f"{__path__[0]}/{name}.py", f"{__path__[0]}/{name}/__init__.py")
    inside = name.startswith("_") or any(os.access(path, os.R_OK) for path in paths)
    home = _HOMES.get(name) or (None if inside else _public_names().get(name))
    if home is None:
        raise AttributeError(f"module 'vernier' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return ["__version__", *sorted(_public_names())]


class _Callable(type(sys)):  # type: ignore[misc]
    """The package `vernier.report`, which is also the function: `vernier.report(runs, out="page.html")`."""

    def __call__(self, *arguments: Any, **options: Any) -> Path:
        from .api.reports import report

        path: Path = report(*arguments, **options)
        return path


class _Door(type(sys)):  # type: ignore[misc]
    """This module. Python sets its subpackages as attributes, in front of the function of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "report" and isinstance(value, type(sys)):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
