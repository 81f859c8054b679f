"""Which engines can be used here: what is installed, in which version, and what no engine but PyTorch does.

Imports neither torch nor an engine, so that commands refuse at once.
"""

import re

from vernier.config import Machine
from vernier.errors import ConfigError

_EXPORT = {"onnx": (1, 19), "onnxscript": (0, 5)}
PACKAGES = {
    "onnxruntime": {"onnxruntime": (1, 22), **_EXPORT},
    "openvino": {"openvino": (2025, 2), **_EXPORT},
}
"""What each engine needs, with the lowest version; the extras of pyproject.toml have the same."""


def check_engine(machine: Machine) -> None:
    """Refuse, before anything is loaded, an engine that cannot do what the settings say. Raises ConfigError."""
    engine = machine.engine
    if engine == "torch":
        if machine.int8:
            raise ConfigError("--int8 needs --engine onnxruntime or auto: --engine torch has no INT8 here.")
        return
    if machine.device not in ("auto", "cpu"):
        raise ConfigError(f"--engine {engine} runs on the CPU, not on {machine.device}: use --engine torch there.")
    if machine.mode != "eager":
        raise ConfigError(f"--engine {engine} has no --mode {machine.mode}: use --mode eager, or --engine torch.")
    if machine.precision != "fp32":
        raise ConfigError(
            f"--engine {engine} computes in fp32, or in INT8 with --int8, not in {machine.precision}: use "
            "--set machine.precision=fp32, or --engine torch."
        )
    if machine.procs > 1:
        raise ConfigError(f"--engine {engine} runs in one process with all cores, not in {machine.procs}: --procs 1.")
    if engine == "openvino" and machine.int8:
        raise ConfigError(
            "--int8 runs in onnxruntime: OpenVINO computes something else with its file. Use --engine auto."
        )
    if engine != "auto" and (problem := _problem(engine)):
        raise ConfigError(f"--engine {engine} needs {problem}")
    if machine.int8 and (problem := _problem("onnxruntime")):  # whose quantiser makes the file for every engine
        raise ConfigError(f"--int8 needs {problem}")


def installed_engines() -> list[str]:
    """The engines besides PyTorch that are installed in a version that works."""
    return [engine for engine in PACKAGES if not _problem(engine)]


def _problem(engine: str) -> str:
    """What an engine lacks, and the command that installs it; empty where it lacks nothing."""
    from vernier.measure.machine.environment import installed_version  # psutil, which --help does without

    command = f"pip install --upgrade 'vernier[{engine}]'"
    versions = {package: installed_version(package) for package in PACKAGES[engine]}
    if missing := [package for package, version in versions.items() if version is None]:
        return f"{', '.join(missing)}: {command}"
    for package, lowest in PACKAGES[engine].items():
        version = versions[package] or ""
        if _numbers(version) < lowest:
            return f"{package} {'.'.join(map(str, lowest))} or newer, and {version} is installed: {command}"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
