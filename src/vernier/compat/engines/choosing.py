"""The engine of a trained model: opened, checked against PyTorch on the user's own images, measured, and put to use.

`use_engine` is what `runners.OnnxEngine.use` does. An engine that computes something else than PyTorch is refused; with
`auto` it is omitted, and the report contains why.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vernier.clock import now_s
from vernier.compat.export.network import (
    ExportedNetwork,
    as_tuple,
    compare_outputs,
    read_images,
    spread_indices,
)
from vernier.config.settings import ENGINES
from vernier.data.augment.normalize import Normalizer
from vernier.data.sources import Source
from vernier.engine.execution import Execution, evaluating
from vernier.engine.inference.engines import installed_engines
from vernier.engine.inference.model_file import FileNetwork, Outputs
from vernier.engine.inference.trained import Trained
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.run import EngineReport, ExportCheck, Int8Loss
from vernier.references import given, use
from vernier.tasks import task_of
from vernier.tasks.base import Task
from vernier.tasks.detection.boxes import Detections, iou

from .onnx_files import COMPARED_IMAGES, divide, first_line, measure_accuracy, onnx_file, quantized_file
from .runners import OnnxEngine

_CHECK_IMAGES = 32
_LARGEST_BATCH = 32
"""On a CPU a larger batch is hardly faster per image, and takes long to measure."""
SECONDS, ROUNDS = 2.0, 3
"""How long each engine is measured, and with how many batches at least."""
_SAME_BOX_IOU = 0.9
Network = Callable[[torch.Tensor], Any]


@frozen
class _Opened:
    """An engine with the network, ready to run, and how it compares with PyTorch."""

    name: str
    network: FileNetwork
    check: ExportCheck
    same_boxes: int | None


def use_engine(trained: Trained, source: Source, *, batch: int, labelled: bool = True) -> Trained:
    """The model, run by the engine of its settings, with a report; images of `source` are what it is checked on.

    `batch` is how many images it will be given at a time; without `labelled` INT8 and bf16 are only compared with fp32.
    Raises ConfigError for what an engine cannot do, and RunFailed for one that does not compute what PyTorch does.
    """
    machine, task = trained.config.machine, task_of(trained.config.recipe)
    # Before the export, which takes long: this refuses too few images, and random pixels.
    calibrated, compared = np.zeros(0, np.int64), spread_indices(len(source), COMPARED_IMAGES)
    if machine.int8:
        calibrated, compared = divide(source, trained.config.recipe.data.source)
    reader = task.eval_reader(source)
    images, _ = read_images(reader, spread_indices(len(source), _CHECK_IMAGES))
    size = min(batch, _LARGEST_BATCH)
    measured = images.repeat(-(-size // len(images)), 1, 1, 1)[:size]  # a few images are repeated to a batch
    report = EngineReport(engine="", requested=machine.engine, batch=size)
    automatic = machine.engine == "auto"
    # OpenVINO reads the quantized file and computes something else (docs/inference-engines.md).
    names = ["onnxruntime"] if machine.int8 else _installed_engines() if automatic else [machine.engine]
    file, opened, problems = _open_all(trained, images, names)
    report = replace(report, problems=tuple(problems))
    # `auto` can fall back to PyTorch, but not for INT8, nor for a file without weights that PyTorch could load.
    if problems and (machine.int8 or trained.runtime or not automatic) and not opened:
        raise RunFailed(" ".join(problems))

    def in_lower(best: _Opened, lower: FileNetwork, kind: str, rates: Mapping[str, float], was: str) -> Trained:
        """The network in INT8 or bf16, with what that costs on the images and gains."""
        accuracy = measure_accuracy(task, source, compared, best.network, lower, labelled=labelled)
        loss = Int8Loss(
            calibration_images=len(calibrated),
            metric=task.metric if labelled else None,
            **vars(accuracy),
            fp32_images_per_s=rates[was],
            int8_images_per_s=rates[f"{best.name} {kind}"],
        )
        return _used(trained, replace(best, network=lower), replace(report, rates=rates, **{kind.lower(): loss}))

    if machine.int8 or machine.precision == "bf16":
        (best,) = opened
        quantized = quantized_file(file, read_images(reader, calibrated)[0]) if machine.int8 else file
        kind = "INT8" if machine.int8 else "bf16"
        lower = _open_network(best.name, quantized, images, bf16=not machine.int8)
        both = {f"{best.name} fp32": best.network, f"{best.name} {kind}": lower}
        return in_lower(best, lower, kind, measure_rates(both, measured), f"{best.name} fp32")
    if not automatic:
        return _used(trained, opened[0], report)
    # PyTorch is one of the engines, unless it cannot run the file.
    networks: dict[str, Network] = {} if trained.runtime else {"torch": _torch_network(trained, size)}
    networks |= {each.name: each.network for each in opened}
    in_bf16 = dict[str, tuple[_Opened, FileNetwork]]()
    for each in opened if machine.allow_lower_precision else ():
        with suppress(RunFailed):  # of the engines that have it
            in_bf16[f"{each.name} bf16"] = each, _open_network(each.name, file, images, bf16=True)
    rates = measure_rates({**networks, **{name: lower for name, (_, lower) in in_bf16.items()}}, measured)
    fastest = max(rates, key=lambda name: rates[name])
    if fastest in in_bf16:
        best, lower = in_bf16[fastest]
        return in_lower(best, lower, "bf16", rates, best.name)
    report = replace(report, rates=rates)
    if fastest != "torch":
        return _used(trained, next(each for each in opened if each.name == fastest), report)
    if len(rates) == 1 and not problems:
        missing = "no other engine is installed: pip install 'vernier[onnxruntime,openvino]'"
        report = replace(report, problems=(missing,))
    return _reported(trained, replace(report, engine=f"torch {torch.__version__}"))


def _installed_engines() -> list[str]:
    return [name for name in installed_engines() if issubclass(load_group(ENGINES, type)[name], OnnxEngine)]


def _used(trained: Trained, opened: _Opened, report: EngineReport) -> Trained:
    runtime = opened.network.runtime
    reference = trained.runtime or "PyTorch"
    report = replace(report, engine=runtime, reference=reference, check=opened.check, same_boxes=opened.same_boxes)
    return _reported(replace(trained, model=opened.network, takes_pixels=True, runtime=runtime), report)


def _reported(trained: Trained, report: EngineReport) -> Trained:
    # The loader's note on what runs a model file: it may be another engine now.
    notes = tuple(note for note in trained.notes if not note.startswith("run by "))
    return replace(trained, engine=report, notes=(*notes, *report.lines()))


# -------------------------------------------------------------------------------------------------------------- opening


def _file_and_outputs(trained: Trained, images: torch.Tensor) -> tuple[Path, Outputs]:
    """The network as an ONNX file that takes pixels, and what it should compute of these images."""
    if trained.device.name != "cpu":
        raise ConfigError(
            f"{given('machine.engine', trained.config.machine.engine)} runs on the CPU, and this model is on "
            f"{trained.device.name}. Use {use('machine.device', 'cpu')} or {use('machine.engine', 'torch')}."
        )
    if trained.runtime:
        if not trained.runtime.startswith("onnxruntime") or not trained.takes_pixels:
            raise ConfigError(
                f"{trained.origin} is run by {trained.runtime} only. "
                f"{given('machine.engine', trained.config.machine.engine)} needs the run, a safetensors file, or an "
                "ONNX file that takes pixels."
            )
        # An ONNX file has no model in PyTorch to compare with: the reference is onnxruntime, which loaded it.
        return Path(trained.origin), as_tuple(trained.model(images))
    network = ExportedNetwork(trained, normalized_input=False)
    with evaluating(network, trained.device):
        return onnx_file(trained, network, images), as_tuple(network(images))


def _open_all(trained: Trained, images: torch.Tensor, names: Sequence[str]) -> tuple[Path, list[_Opened], list[str]]:
    """The ONNX file, the engines that compute what PyTorch does with it, and what is wrong with the others."""
    if not names:
        return Path(), [], []
    task, opened, problems = task_of(trained.config.recipe), list[_Opened](), list[str]()
    try:
        file, expected = _file_and_outputs(trained, images)
    except RunFailed as error:
        return Path(), [], [error.message]
    then = f"Use {use('machine.engine', 'torch')}."
    for name in names:
        try:
            network = _open_network(name, file, images)
            outputs = as_tuple(network(images))
            check = compare_outputs(expected, outputs, network.runtime, "", then=then)
        except RunFailed as error:
            problems.append(f"{name} was omitted: {error.message}" if len(names) > 1 else error.message)
            continue
        same_boxes = _same_boxes(task, expected, outputs, images)
        opened.append(_Opened(name=name, network=network, check=check, same_boxes=same_boxes))
    return file, opened, problems


def _open_network(name: str, file: Path, images: torch.Tensor, *, bf16: bool = False) -> FileNetwork:
    """The file in an engine, after it has run one image. Raises RunFailed."""
    engine = load_group(ENGINES, type)[name]()
    try:
        network = FileNetwork(*(engine.open_bf16 if bf16 else engine.open)(file))
        # A file that opens may hold an operation that fails only when it runs.
        network(images[:1])
        return network
    except Exception as error:  # engines raise types of their own
        torch_engine = use("machine.engine", "torch")
        raise RunFailed(f"{name} cannot run this model: {first_line(error)}. Use {torch_engine}.") from error


def _same_boxes(task: Task, expected: Outputs, outputs: Outputs, images: torch.Tensor) -> int | None:
    """For how many images a detector's best object is of the same class at the same position; None for classifiers."""
    if task.name != "detect":
        return None
    ours: Detections = task.predict(lambda _: expected, images)
    others: Detections = task.predict(lambda _: outputs, images)
    # Detections [images, detections, 4] are sorted, best first. Two empty images agree.
    overlap = iou(ours.ltrb[:, :1], others.ltrb[:, :1])[:, 0, 0]
    same = (ours.classes[:, 0] == others.classes[:, 0]) & (overlap > _SAME_BOX_IOU)
    return int((same | ((ours.count == 0) & (others.count == 0))).sum())


# ------------------------------------------------------------------------------------------------------------ measuring


def _torch_network(trained: Trained, batch: int) -> Network:
    """PyTorch's own network as evaluation runs it, from pixels."""
    machine, device = trained.config.machine, trained.device
    forward = Execution(trained.model, machine, device, frozen=True).evaluation_network(batch)
    normalize = Normalizer(trained.config.recipe.data, torch.device("cpu"))

    def run(images: torch.Tensor) -> Any:
        with evaluating(trained.model, device):
            return forward(normalize(images.contiguous(memory_format=torch.channels_last)))

    return run


def measure_rates(networks: Mapping[str, Network], images: torch.Tensor) -> dict[str, float]:
    """Images per second of each network on this batch: the median of calls that take turns, after one each."""
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for network in networks.values():
        # Compiling and allocating memory happen in the first call, which is not counted.
        network(images)
    while any(sum(own) < SECONDS or len(own) < ROUNDS for own in seconds.values()):
        # Interleaved: when another program takes the cores, it slows down all of them and not one.
        for name, network in networks.items():
            began_s = now_s()
            network(images)
            seconds[name].append(now_s() - began_s)
    return {name: len(images) / statistics.median(own) for name, own in seconds.items()}
