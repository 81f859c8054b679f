"""Requests of `eval`, `predict` and `export`, and of Python's `load` and `create_model`: what is done with models."""

from typing import Literal

from vernier.config.settings import Engine, ExportFormat, Mode, Precision

from .common import Assigned, InProcesses, Json, OnDevice, Quiet, Settings, WithWorkers
from .declaring import Request, argument, option, request, shared
from .values import Code, DataPath, FilePath

AS_TRAINED = "as in training; {} for third-party weights"


@shared
class ChosenModel(Assigned):
    """A model to use: of a run, a checkpoint, an exported file or anybody's weights."""

    source: FilePath = argument(
        help="A run directory, one of its checkpoints, an exported file, a third-party weights file (safetensors or "
        "torch, which is never run as code), or published weights by name, such as torchvision:resnet50-v2.",
        metavar="MODEL",
        names=("--weights",),
    )
    model: Code | None = option(
        None,
        "Model that the weights in the file are for; `vernier models` lists them. Or your own: mynets:Net.",
        default="the one that the file names",
        metavar="NAME",
        names=("--arch",),
        group="model",
    )
    classes: tuple[FilePath, ...] = option(
        (),
        "Class names of third-party weights in the order of the outputs: a text file with one per line, or the "
        "names themselves.",
        metavar="FILE|NAME,...",
        group="model",
    )
    which: str = option(
        "latest", "Checkpoint of a run: latest, best or a step.", metavar="latest|best|STEP", group="model"
    )
    ema: bool | None = option(
        None,
        "Use the averaged weights, or the raw ones.",
        default="averaged if the checkpoint has them",
        group="model",
    )


@shared
class _WithEngine(Request):
    """Commands that run a trained model."""

    engine: Engine | None = option(
        None,
        "What runs the model, on the CPU. Any engine but torch is first checked against torch on the images; auto "
        "measures those that are installed for a few seconds each and takes the fastest.",
        default="torch",
        sets="machine.engine",
    )
    int8: bool = option(
        False,
        "Run in INT8 instead of fp32, calibrated on some of these images (at least 30); the output shows what "
        "that costs and gains on the others. Needs the engine onnxruntime or auto.",
        sets="machine.int8",
    )
    allow_lower_precision: bool = option(
        False,
        "With the engine auto: also measure bf16 (OpenVINO, on a CPU with its instructions) and use it if it is the "
        "fastest; the output shows what that costs on these images.",
        sets="machine.allow_lower_precision",
    )


@shared
class UsedModel(ChosenModel, OnDevice, _WithEngine, Settings):
    """A model that is run here."""

    precision: Precision | None = option(
        None,
        "Number format the model computes in.",
        default=AS_TRAINED.format("fp32"),
        sets="machine.precision",
    )


@shared
class _WithEvaluationMode(Settings):
    """Evaluations, which can be compiled."""

    mode: Mode | None = option(
        None,
        "How the model is executed in evaluation.",
        default=AS_TRAINED.format("eager"),
        sets="machine.mode",
    )


@request("eval")
class Evaluate(UsedModel, _WithEvaluationMode, InProcesses, WithWorkers, Quiet, Json):
    """Evaluate a run (finished, running or interrupted), a checkpoint, an exported file or anybody's weights.

    Every image counts once. The output contains how images were prepared.

    Examples:
        vernier eval runs/RUN
        vernier eval runs/RUN --which best --data photos --split test
        vernier eval runs/RUN --engine auto --int8
        vernier eval --model resnet50 --weights resnet50.pth --data imagenet
    """

    data: DataPath | None = argument(
        None,
        "Data set or folder to evaluate on, or your own: module:name. Third-party weights need one.",
        default="the run's own data",
        metavar="NAME|PATH",
        names=("--data", "--dataset"),
        sets="data.source",
    )
    which: str = option(
        "latest",
        "Checkpoint of a run: latest, best or a step; all: every one, in order.",
        metavar="latest|best|STEP|all",
        group="model",
    )
    split: Literal["val", "test", "train"] | None = option(
        None,
        "Part of the data to evaluate on.",
        default="val; all of a folder without splits, but only the held-out part of the one the run was trained on",
        group="data",
    )
    classes_by_number: bool = option(
        False,
        "Take class i of the data for output i of the model, whatever their names are. Without it, classes are "
        "matched by name: another order is mapped, some of the model's classes are enough, and other names are "
        "refused.",
        group="data",
    )
    flip_tta: bool = option(
        False,
        "Test-time augmentation: add the scores of the mirrored image. The result contains that it was used.",
        sets="eval.flip_tta",
        group="data",
    )
    max_eval_steps: int | None = option(
        None,
        "Evaluate on a fair sample of this many batches only: every class in proportion, always the same images.",
        low=1,
        unit="batches",
        group="data",
        advanced=True,
    )
    out: FilePath | None = option(
        None,
        "Folder for the predictions: detections.json of a detector, in COCO's results format.",
        metavar="DIR",
        names=("-o", "--output"),
        group="output",
    )
    tensorboard: bool = option(
        True,
        "If every checkpoint is evaluated: write the metrics of each for TensorBoard into RUN/tensorboard/eval, "
        "if the package is installed.",
        group="output",
        advanced=True,
    )


@request("predict")
class Predict(UsedModel, WithWorkers, Quiet, Json):
    """Apply a trained model to images: the five most likely classes, or objects with boxes.

    Images are prepared exactly as in evaluation. The exit code is 1 if an image could not be read; the others are
    predicted.

    Examples:
        vernier predict runs/RUN photo.jpg
        vernier predict runs/RUN photos --out predicted
        vernier predict runs/RUN photos --engine auto
        vernier predict --model resnet50 --weights resnet50-11ad3fa6.pth --classes imagenet.txt photo.jpg
    """

    images: tuple[FilePath, ...] = argument(
        help="Image files, or folders that contain them.",
        metavar="IMAGE|DIR...",
        repeats=True,
    )
    out: FilePath | None = option(
        None,
        "Folder for predictions.json and pictures: boxes drawn on every image, or one sheet of classes with bars.",
        metavar="DIR",
        names=("-o", "--output"),
    )
    min_score: float = option(
        0.3, "Hide objects with a score below this; predictions.json contains all.", low=0, high=1
    )
    data: FilePath | None = option(
        None,
        "Data set or folder to take the class names of third-party weights from.",
        metavar="NAME|PATH",
        names=("--dataset",),
        sets="data.source",
        group="model",
        advanced=True,
    )


@request("export")
class Export(ChosenModel, Quiet, Json):
    """Write a model to one file for use elsewhere, with model_card.md in the same folder; nothing is overwritten.

    The file contains the model's name, its classes, how images are prepared, and the result: `vernier eval FILE`,
    `vernier predict FILE` and `vernier bench infer FILE` need nothing else. An ONNX file is run on real
    validation images and compared with PyTorch before it gets its name.

    Examples:
        vernier export runs/RUN
        vernier export runs/RUN --which best --format onnx --out shapes.onnx
        vernier export runs/RUN --format torchvision --out shapes.pth
        vernier export --model resnet50 --weights resnet50-11ad3fa6.pth --classes imagenet.txt
    """

    out: FilePath | None = argument(
        None,
        "File to write.",
        default="named after the recipe, in the current folder",
        metavar="FILE",
        names=("--out", "-o", "--output"),
    )
    format: ExportFormat | None = option(
        None,
        "Weights alone: safetensors, or torchvision's state dict (.pth). The whole model, which takes uint8 "
        "pixels and any batch size: onnx.",
        default="by the ending of the file; otherwise safetensors",
    )
    normalized_input: bool = option(
        False,
        "The exported model takes normalized images (float32) instead of uint8 pixels.",
        names=("--normalised-input",),
        advanced=True,
    )
    data: FilePath | None = option(
        None,
        "Data set or folder with the images to check an exported model on. Class names of third-party weights are "
        "taken from it, too.",
        default="the run's own data",
        metavar="NAME|PATH",
        names=("--dataset",),
        sets="data.source",
        group="data",
    )
    card: bool = option(
        True,
        "Write the model card: recipe, data, result, limits, and how the file was checked.",
        group="output",
    )


@request()
class Load(UsedModel, _WithEvaluationMode):
    """Load a trained model: a run, a checkpoint, an exported file, or anybody's weights.

    Published weights are downloaded once. The model predicts, evaluates and prepares images as a run does. Raises
    ConfigError for what does not fit, and RunFailed for weights that contain NaN and for an engine whose results
    differ from PyTorch's.
    """


@request()
class CreateModel(Assigned):
    """Create a model of the catalog as a module of PyTorch, in training mode, with new weights or those of a file.

    Initial weights are drawn from torch's generator. A detector has one more output, for the background. Raises
    ConfigError.
    """

    name: str = argument(help="Name of the model; `vernier models` lists them.", metavar="NAME")
    weights: FilePath | None = option(
        None,
        "A safetensors or torch file of Vernier, torchvision, timm, NVIDIA or Habana, or published weights by "
        "name, such as torchvision:resnet50-v2, which are downloaded once.",
    )
    num_classes: int | None = option(
        None,
        "Number of classes. Another number than that of the weights replaces the last layer by a new one.",
        default="that of the weights, or of the published model",
        low=1,
    )
    in_channels: int | None = option(None, "Channels of the images.", default="that of the weights, or 3", low=1)
