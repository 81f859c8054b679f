"""The engines that run ONNX files: what they need, what they cannot do, and how they open a file.

Imports neither torch nor an engine, so that commands refuse at once; `choosing` checks, measures and uses them.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vernier.config import Machine
from vernier.errors import ConfigError
from vernier.references import given, use

if TYPE_CHECKING:
    import torch

    from vernier.data.sources import Source
    from vernier.engine.inference.model_file import Outputs, Runner
    from vernier.engine.inference.trained import Trained

_EXPORT = {"onnx": (1, 19), "onnxscript": (0, 5)}


class OnnxEngine:
    """An engine that opens ONNX files, a `engine.inference.engines.Engine`. Those of other packages derive from it to
    be checked against PyTorch, and to take part in `auto`."""

    name: ClassVar[str]
    has_bf16: ClassVar[bool] = False
    packages: ClassVar[dict[str, tuple[int, int]]]
    """What it needs, with the lowest version; the extra of its name in pyproject.toml has the same."""

    def open(self, path: Path) -> "tuple[Runner, str]":
        """The file, run on the CPU with as many threads as torch has, and the engine's name with its version. Raises
        what the engine raises."""
        raise NotImplementedError

    def open_bf16(self, path: Path) -> "tuple[Runner, str]":
        """The same with products in bf16."""
        raise RuntimeError(f"{self.name} has no bf16 kernels for CPUs")

    def why_not(self) -> str:
        from vernier.measure.environment import installed_version  # psutil, which help does without

        command = f"pip install -U 'vernier[{self.name}]'"
        versions = {package: installed_version(package) for package in self.packages}
        if missing := [package for package, version in versions.items() if version is None]:
            return f"{', '.join(missing)}: {command}"
        for package, lowest in self.packages.items():
            version = versions[package] or ""
            if tuple(map(int, re.findall(r"\d+", version)[:2])) < lowest:
                return f"{package} {'.'.join(map(str, lowest))} or newer, and {version} is installed: {command}"
        return ""

    def check(self, machine: Machine) -> None:
        engine, int8 = given("machine.engine", machine.engine), given("machine.int8", True)
        torch = use("machine.engine", "torch")
        if machine.device not in ("auto", "cpu"):
            raise ConfigError(
                f"{engine} runs on the CPU, not with {given('machine.device', machine.device)}. Use {torch}."
            )
        if machine.mode != "eager":
            raise ConfigError(
                f"{engine} does not work with {given('machine.mode', machine.mode)}. Use "
                f"{use('machine.mode', 'eager')} or {torch}."
            )
        if machine.precision != "fp32" and (machine.precision != "bf16" or machine.int8 or not self.has_bf16):
            lower = "fp32 or bf16" if self.has_bf16 else "fp32 (bf16: the engine openvino)"
            raise ConfigError(
                f"{engine} computes in {lower}, or in INT8 with {use('machine.int8', True)}, not with "
                f"{given('machine.precision', machine.precision)}. Use {use('machine.precision', 'fp32')} or {torch}."
            )
        if machine.allow_lower_precision and (machine.int8 or self.name != "auto"):
            raise ConfigError(
                f"{given('machine.allow_lower_precision', True)} is for {use('machine.engine', 'auto')} without INT8. "
                "Omit it."
            )
        if machine.procs > 1:
            raise ConfigError(
                f"{engine} runs in one process with all cores, not with {given('machine.procs', machine.procs)}. Use "
                f"{use('machine.procs', 1)}."
            )
        if machine.int8 and not isinstance(self, OnnxRuntime | Auto):
            raise ConfigError(
                f"{int8} runs in onnxruntime: {self.name} computes something else with its file. Use "
                f"{use('machine.engine', 'auto')}."
            )
        if problem := self.why_not():
            raise ConfigError(f"{engine} needs {problem}")
        if machine.int8 and (problem := OnnxRuntime().why_not()):  # whose quantizer makes the file for every engine
            raise ConfigError(f"{int8} needs {problem}")

    def use(self, trained: "Trained", source: "Source", *, batch: int, labelled: bool = True) -> "Trained":
        from .choosing import use_engine

        return use_engine(trained, source, batch=batch, labelled=labelled)


class OnnxRuntime(OnnxEngine):
    """Microsoft's onnxruntime."""

    name = "onnxruntime"
    packages: ClassVar = {"onnxruntime": (1, 22), **_EXPORT}

    def open(self, path: Path) -> "tuple[Runner, str]":
        from vernier.compat.export.onnx import FORMAT

        return FORMAT.open(path)


class OpenVino(OnnxEngine):
    """Intel's OpenVINO."""

    name = "openvino"
    has_bf16 = True
    packages: ClassVar = {"openvino": (2025, 2), **_EXPORT}

    def open(self, path: Path) -> "tuple[Runner, str]":
        return self._open(path, "f32")

    def open_bf16(self, path: Path) -> "tuple[Runner, str]":
        return self._open(path, "bf16")

    def _open(self, path: Path, precision: str) -> "tuple[Runner, str]":
        import openvino
        import torch

        # Without the last of these OpenVINO computes in bf16 on processors that have it, and differs in the third
        # digit.
        options: dict[str, object] = {
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time on all threads
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": precision,
        }
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", options)
        # On a processor without the instructions it computes in fp32 and says nothing.
        if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise RuntimeError("this processor has no bf16 instructions")
        request = compiled.create_infer_request()

        def run(images: "torch.Tensor") -> "Outputs":
            outputs = request.infer([images.contiguous().numpy()], share_inputs=True)
            return tuple(torch.from_numpy(output.copy()) for output in outputs.values())

        version = openvino.__version__.partition("-")[0]
        return run, f"openvino {version} on CPU{', bf16' if precision == 'bf16' else ''}"


class Auto(OnnxEngine):
    """The fastest of PyTorch and the installed engines, measured on the images."""

    name = "auto"
    packages: ClassVar = {}
