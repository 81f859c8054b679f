"""Networks as ONNX files for engines: exported once, in fp32 and in INT8, and what INT8 costs.

Exporting takes longer than measuring an engine does. The name of a file is a hash of the weights and of everything else
that the file depends on, so it never has to be invalidated. The oldest files make room for new ones.

INT8 files are made after training by onnxruntime's static quantization: quantize and dequantize nodes (QDQ), a scale
per output channel of a weight and one per activation, whose range is what was seen on calibration images. Every engine
that reads ONNX can run them. Which engine does is decided in `choosing`.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from vernier.compat.export.network import ExportedNetwork, quiet_exporters, read_images, spread_indices
from vernier.compat.export.onnx import FORMAT
from vernier.data import trusted
from vernier.data.sources import Source
from vernier.data.sources.base import Indices
from vernier.devices.cpu import instruction_sets
from vernier.engine.inference.model_file import FileNetwork
from vernier.engine.inference.trained import Trained
from vernier.errors import ConfigError, RunFailed
from vernier.folders import cache_home
from vernier.frozen import frozen
from vernier.measure.environment import installed_version
from vernier.references import given, use
from vernier.tasks.base import Task
from vernier.version import describe_version

KEPT_FILES = 8


def onnx_file(trained: Trained, network: ExportedNetwork, images: torch.Tensor) -> Path:
    """The network as an ONNX file that takes pixels. Raises RunFailed where it cannot be exported."""
    model, data = trained.config.recipe.model, trained.config.recipe.data
    versions, shape = (torch.__version__, describe_version()), (*images.shape[1:], len(trained.classes))
    key = hashlib.sha256(repr((versions, shape, model, data.mean, data.std)).encode())
    for name, tensor in trained.model.state_dict().items():
        key.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())

    def write(path: Path) -> None:
        try:
            with quiet_exporters():
                FORMAT.write(network, network.names, images, path, {})
        except Exception as error:  # the exporter raises types of its own
            cause: BaseException = error
            while cause.__cause__ is not None:  # the exporter's own words are about what it will try next
                cause = cause.__cause__
            problem, instead = first_line(cause), use("machine.engine", "torch")
            raise RunFailed(f"This model cannot be exported to ONNX: {problem}. Use {instead}.") from error

    return cached_file(key.hexdigest(), write)


def first_line(error: BaseException) -> str:
    """What another library says about a failure, without the pages that may follow."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cached_file(key: str, write: Callable[[Path], None]) -> Path:
    """The file of this key, written first where it is not there."""
    folder = cache_home() / "engines"
    try:
        path = trusted.cached_file(folder / f"{key[:32]}.onnx", write)
        path.touch()
        newest_first = sorted(folder.glob("*.onnx"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in newest_first[KEPT_FILES:]:
            old.unlink(missing_ok=True)
            trusted.record_of(old).unlink(missing_ok=True)
    except OSError as error:
        raise RunFailed(f"{folder} could not be written: {error}. Free some space, or set VERNIER_HOME.") from None
    return path


# ----------------------------------------------------------------------------------------------------------------- INT8


CALIBRATION_IMAGES, COMPARED_IMAGES, FEWEST_IMAGES = 128, 256, 30
_BATCH = 8
_RANDOM_PIXELS = ("synthetic", "static")


@frozen
class Accuracy:
    """The figure of a network in fp32 and in INT8 on the same images; None without labels.

    `same_top1` is the share of images with the same most likely class; None for detectors.
    """

    images: int
    fp32: float | None
    int8: float | None
    same_top1: float | None


def divide(source: Source, data: str) -> tuple[Indices, Indices]:
    """Which images to calibrate on, and which to compare on. Raises ConfigError where they are too few or not real."""
    if data in _RANDOM_PIXELS:
        raise ConfigError(
            f"{given('machine.int8', True)} is calibrated on real images, and {given('data.source', data)} has random "
            f"pixels: give {use('data.source', slot='PATH')}."
        )
    if len(source) < FEWEST_IMAGES:
        raise ConfigError(
            f"{given('machine.int8', True)} is calibrated on a third of the images and compared with fp32 on the "
            f"others: {len(source)} are too few, give at least {FEWEST_IMAGES}."
        )
    chosen = spread_indices(len(source), CALIBRATION_IMAGES + COMPARED_IMAGES)
    return chosen[::3], np.delete(chosen, np.s_[::3])


def quantized_file(path: Path, images: torch.Tensor) -> Path:
    """The INT8 form of an ONNX file, calibrated on these images. Raises RunFailed where it cannot be made."""
    saturates = not instruction_sets() & {"avx512_vnni", "avx_vnni", "asimddp", "amx_int8"}
    key = hashlib.sha256(f"{path.stem} {installed_version('onnxruntime')} {saturates}".encode())
    key.update(images.numpy().tobytes())

    def write(target: Path) -> None:
        from onnxruntime import quantization

        logging.disable(logging.WARNING)  # it recommends a preparation that the exporter has made already
        try:
            quantization.quantize_static(
                path,
                target,
                _Batches(images),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                # Without VNNI the sum of two products can exceed 16 bits, unless weights have 7.
                reduce_range=saturates,
                calibrate_method=quantization.CalibrationMethod.MinMax,
            )
        except Exception as error:  # the quantiser raises types of its own
            int8 = given("machine.int8", True)
            raise RunFailed(f"This model cannot be quantized to INT8: {first_line(error)}. Omit {int8}.") from error
        finally:
            logging.disable(logging.NOTSET)

    return cached_file(key.hexdigest(), write)


class _Batches:
    """Calibration images in the form that onnxruntime asks for them."""

    def __init__(self, images: torch.Tensor) -> None:
        self._batches: Iterator[torch.Tensor] = iter(torch.split(images, _BATCH))

    def get_next(self) -> dict[str, object] | None:
        batch = next(self._batches, None)
        return None if batch is None else {"images": batch.numpy()}


def measure_accuracy(
    task: Task, source: Source, indices: Indices, fp32: FileNetwork, int8: FileNetwork, *, labelled: bool
) -> Accuracy:
    """Both networks on these images of the source, prepared as in evaluation."""
    reader, scores, same = task.eval_reader(source), (task.score(source), task.score(source)), 0
    for start in range(0, len(indices), _BATCH):
        images, targets = read_images(reader, indices[start : start + _BATCH])
        predictions = [task.predict(network, images) for network in (fp32, int8)]
        for score, predicted in zip(scores, predictions, strict=True):
            if labelled:
                score.add(predicted, targets)
        if task.name == "classify":
            same += int((predictions[0].argmax(1) == predictions[1].argmax(1)).sum())
    figures: list[float | None] = [None, None]
    if labelled:
        for score in scores:
            score.collect()
        figures = [score.result().figures.get(task.metric) for score in scores]
    share = same / len(indices) if task.name == "classify" else None
    return Accuracy(images=len(indices), fp32=figures[0], int8=figures[1], same_top1=share)
