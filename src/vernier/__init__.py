"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured.

    import vernier as v

    run = v.train("shapes-quick", epochs=3)
    run.result.top1
    v.load(run).predict("photo.jpg")

Functions are imported when they are used: `import vernier` takes milliseconds, and PyTorch comes with the first
function that needs it. Everything public is in `__all__`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # without `typing`, which takes longer to import than everything else before signals are caught
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from vernier.api.benchmarks import Benchmark as Benchmark
    from vernier.api.benchmarks import Tuning as Tuning
    from vernier.api.benchmarks import bench as bench
    from vernier.api.benchmarks import tune as tune
    from vernier.api.comparisons import Comparison as Comparison
    from vernier.api.comparisons import Study as Study
    from vernier.api.comparisons import compare as compare
    from vernier.api.comparisons import study as study
    from vernier.api.display import report as report
    from vernier.api.finetuning import FinetunedRun as FinetunedRun
    from vernier.api.finetuning import finetune as finetune
    from vernier.api.models import Export as Export
    from vernier.api.models import Model as Model
    from vernier.api.models import Prediction as Prediction
    from vernier.api.models import create_model as create_model
    from vernier.api.models import evaluate as evaluate
    from vernier.api.models import export as export
    from vernier.api.models import load as load
    from vernier.api.models import predict as predict
    from vernier.api.runs import Events as Events
    from vernier.api.runs import Result as Result
    from vernier.api.runs import Run as Run
    from vernier.api.runs import open_run as open_run
    from vernier.api.training import train as train
    from vernier.api.words import Interrupted as Interrupted
    from vernier.errors import ConfigError as ConfigError
    from vernier.errors import RunFailed as RunFailed

__version__ = "0.4.0.dev0"

_HOMES = {
    "train": "vernier.api.training",
    "finetune": "vernier.api.finetuning",
    "FinetunedRun": "vernier.api.finetuning",
    "Run": "vernier.api.runs",
    "Result": "vernier.api.runs",
    "Events": "vernier.api.runs",
    "open_run": "vernier.api.runs",
    "load": "vernier.api.models",
    "Model": "vernier.api.models",
    "Prediction": "vernier.api.models",
    "create_model": "vernier.api.models",
    "evaluate": "vernier.api.models",
    "predict": "vernier.api.models",
    "export": "vernier.api.models",
    "Export": "vernier.api.models",
    "bench": "vernier.api.benchmarks",
    "Benchmark": "vernier.api.benchmarks",
    "tune": "vernier.api.benchmarks",
    "Tuning": "vernier.api.benchmarks",
    "compare": "vernier.api.comparisons",
    "Comparison": "vernier.api.comparisons",
    "study": "vernier.api.comparisons",
    "Study": "vernier.api.comparisons",
    "report": "vernier.report",
    "Interrupted": "vernier.api.words",
    "ConfigError": "vernier.errors",
    "RunFailed": "vernier.errors",
}
"""Where each public name comes from. `report` is a package that can be called: see `_Callable`."""

__all__ = ["__version__", *_HOMES]


if not TYPE_CHECKING:  # which know the names from above, and find those that are not there

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'vernier' has no attribute {name!r}")
        module = import_module(_HOMES[name])
        return module if name == "report" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Callable(type(sys)):  # type: ignore[misc]
    """The package `vernier.report`, which is also the function: `vernier.report(runs, "page.html")`."""

    def __call__(self, runs: Any, out: Any = None) -> Path:
        from vernier.api.display import report

        return report(runs, out)


class _Door(type(sys)):  # type: ignore[misc]
    """This module. Python sets its subpackages as attributes, in front of the function of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "report" and isinstance(value, type(sys)):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
