"""Every command with the request that declares it, imported when it is used."""

from importlib import import_module

from .declaring import Request

_HERE = __name__.rpartition(".")[0]
COMMANDS: dict[str, str] = {
    "train": "training:Train",
    "finetune": "training:Finetune",
    "eval": "models:Evaluate",
    "predict": "models:Predict",
    "export": "models:Export",
    "bench train": "benchmarks:BenchTrain",
    "bench infer": "benchmarks:BenchInfer",
    "bench scaling": "benchmarks:BenchScaling",
    "bench data": "benchmarks:BenchData",
    "bench arm": "benchmarks:BenchArm",
    "tune train": "tuning:TuneTrain",
    "tune infer": "tuning:TuneInfer",
    "profile train": "profiling:ProfileTrain",
    "profile infer": "profiling:ProfileInfer",
    "compare": "comparing:Compare",
    "report": "comparing:Report",
    "convert": "comparing:Convert",
    "runs list": "runs:ListRuns",
    "runs clean": "runs:CleanRuns",
    "plan": "planning:Plan",
    "submit": "planning:Submit",
    "study run": "studies:StudyRun",
    "study analyze": "studies:StudyAnalyze",
    "study baseline": "studies:StudyBaseline",
    "study check": "studies:StudyCheck",
    "study merge": "studies:StudyMerge",
    "study simulate": "studies:StudySimulate",
    "study design": "studies:StudyDesign",
    "recipes": "catalog:Recipes",
    "models": "catalog:Models",
    "data make": "data:MakeData",
    "data prepare": "data:PrepareData",
    "data verify": "data:VerifyData",
    "data inspect": "data:InspectData",
    "data get": "data:GetData",
    "doctor": "catalog:Doctor",
    "completion": "catalog:Completion",
}
"""Module of this package and class, in the order of help and reference pages."""
INTERNAL = ("bench arm",)
"""Commands that Vernier starts itself; no help lists them."""


def find(command: str) -> type[Request] | None:
    """The request of a command; None if there is no such command."""
    home = COMMANDS.get(command)
    if home is None:
        return None
    module, _, name = home.partition(":")
    cls: type[Request] = getattr(import_module(f"{_HERE}.{module}"), name)
    return cls
