"""Every command with the request that declares it and the function that prints its result, imported when used."""

from importlib import import_module

from .declaring import Request

_HERE = __name__.rpartition(".")[0]
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("training:Train", "training:train"),
    "finetune": ("training:Finetune", "training:finetune"),
    "eval": ("models:Evaluate", "models:evaluate"),
    "predict": ("models:Predict", "models:predict"),
    "export": ("models:Export", "models:export"),
    "bench train": ("benchmarks:BenchTrain", "benchmarks:train"),
    "bench infer": ("benchmarks:BenchInfer", "benchmarks:infer"),
    "bench scaling": ("benchmarks:BenchScaling", "benchmarks:scaling"),
    "bench data": ("benchmarks:BenchData", "benchmarks:data"),
    "bench arm": ("benchmarks:BenchArm", "benchmarks:arm"),
    "tune train": ("tuning:TuneTrain", "tuning:tune"),
    "tune infer": ("tuning:TuneInfer", "tuning:tune"),
    "profile train": ("profiling:ProfileTrain", "tuning:profile"),
    "profile infer": ("profiling:ProfileInfer", "tuning:profile"),
    "compare": ("comparing:Compare", "reports:compare"),
    "report": ("comparing:Report", "reports:report"),
    "convert": ("comparing:Convert", "reports:convert"),
    "runs list": ("runs:ListRuns", "runs:list_runs"),
    "runs clean": ("runs:CleanRuns", "runs:clean"),
    "plan": ("planning:Plan", "planning:plan"),
    "submit": ("planning:Submit", "planning:submit"),
    "study run": ("studies:StudyRun", "studies:run"),
    "study analyze": ("studies:StudyAnalyze", "studies:analyze"),
    "study baseline": ("studies:StudyBaseline", "studies:baseline"),
    "study check": ("studies:StudyCheck", "studies:check"),
    "study merge": ("studies:StudyMerge", "studies:merge"),
    "study simulate": ("studies:StudySimulate", "studies:simulate"),
    "study design": ("studies:StudyDesign", "studies:design"),
    "recipes": ("catalog:Recipes", "catalog:recipes"),
    "models": ("catalog:Models", "catalog:models"),
    "data make": ("data:MakeData", "data:make"),
    "data prepare": ("data:PrepareData", "data:prepare"),
    "data verify": ("data:VerifyData", "data:verify"),
    "data inspect": ("data:InspectData", "data:inspect"),
    "data get": ("data:GetData", "data:get"),
    "doctor": ("catalog:Doctor", "doctor:doctor"),
    "completion": ("catalog:Completion", "completion:completion"),
}
"""Module of this package and class that declares a command, and module and function of `vernier.cli` that carries it
out and prints the result, in the order of help and reference pages."""
INTERNAL = ("bench arm",)
"""Commands that Vernier starts itself; no help lists them."""


def find(command: str) -> type[Request] | None:
    """The request of a command; None if there is no such command."""
    if command not in COMMANDS:
        return None
    module, _, name = COMMANDS[command][0].partition(":")
    cls: type[Request] = getattr(import_module(f"{_HERE}.{module}"), name)
    return cls
