"""Which engines can be used here: what is installed, in which version, and what no engine but PyTorch does.

Imports neither torch nor an engine, so that commands refuse at once.
"""

import re

from vernier.config import Machine
from vernier.errors import ConfigError
from vernier.references import given, use

_EXPORT = {"onnx": (1, 19), "onnxscript": (0, 5)}
PACKAGES = {
    "onnxruntime": {"onnxruntime": (1, 22), **_EXPORT},
    "openvino": {"openvino": (2025, 2), **_EXPORT},
}
"""What each engine needs, with the lowest version; the extras of pyproject.toml have the same."""


def check_engine(machine: Machine) -> None:
    """Refuse, before anything is loaded, an engine that cannot do what the settings say. Raises ConfigError."""
    engine, int8 = given("machine.engine", machine.engine), given("machine.int8", True)
    torch = use("machine.engine", "torch")
    if machine.engine == "torch":
        if machine.int8:
            raise ConfigError(
                f"{int8} needs another engine, because PyTorch has no INT8 here. Use "
                f"{use('machine.engine', 'onnxruntime')} or {use('machine.engine', 'auto')}."
            )
        return
    if machine.device not in ("auto", "cpu"):
        raise ConfigError(f"{engine} runs on the CPU, not with {given('machine.device', machine.device)}. Use {torch}.")
    if machine.mode != "eager":
        raise ConfigError(
            f"{engine} does not work with {given('machine.mode', machine.mode)}. Use {use('machine.mode', 'eager')} or "
            f"{torch}."
        )
    if machine.precision != "fp32":
        raise ConfigError(
            f"{engine} computes in fp32, or in INT8 with {use('machine.int8', True)}, not with "
            f"{given('machine.precision', machine.precision)}. Use {use('machine.precision', 'fp32')} or {torch}."
        )
    if machine.procs > 1:
        raise ConfigError(
            f"{engine} runs in one process with all cores, not with {given('machine.procs', machine.procs)}. Use "
            f"{use('machine.procs', 1)}."
        )
    if machine.engine == "openvino" and machine.int8:
        raise ConfigError(
            f"{int8} runs in onnxruntime: OpenVINO computes something else with its file. Use "
            f"{use('machine.engine', 'auto')}."
        )
    if machine.engine != "auto" and (problem := _problem(machine.engine)):
        raise ConfigError(f"{engine} needs {problem}")
    if machine.int8 and (problem := _problem("onnxruntime")):  # whose quantizer makes the file for every engine
        raise ConfigError(f"{int8} needs {problem}")


def installed_engines() -> list[str]:
    """The engines besides PyTorch that are installed in a version that works."""
    return [engine for engine in PACKAGES if not _problem(engine)]


def _problem(engine: str) -> str:
    """What an engine lacks, and the command that installs it; empty where it lacks nothing."""
    from vernier.measure.environment import installed_version  # psutil, which help does without

    command = f"pip install -U 'vernier[{engine}]'"
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
