"""An ONNX file opened by an engine: a function from pixels to outputs, and the engine's name with its version."""

from pathlib import Path

import torch

from vernier.engine.inference.model_file import Outputs, Runner, open_onnx


def open_session(engine: str, path: Path) -> tuple[Runner, str]:
    """The file, run by this engine on the CPU with as many threads as torch has. Raises what the engine raises."""
    return open_onnx(path) if engine == "onnxruntime" else _open_openvino(path)


def _open_openvino(path: Path) -> tuple[Runner, str]:
    import openvino

    # Without the last of these OpenVINO computes in bf16 on processors that have it, and differs in the third digit.
    options: dict[str, object] = {
        "PERFORMANCE_HINT": "LATENCY",  # one batch at a time on all threads
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()

    def run(images: torch.Tensor) -> Outputs:
        outputs = request.infer([images.contiguous().numpy()], share_inputs=True)
        return tuple(torch.from_numpy(output.copy()) for output in outputs.values())

    version = openvino.__version__.partition("-")[0]
    return run, f"openvino {version} on CPU"
