"""Requests of `train` and `finetune`: what trains a model."""

from typing import Literal

from .common import (
    Divergence,
    InProcesses,
    Json,
    OnDevice,
    Quiet,
    Settings,
    WithMode,
    WithPrecision,
    WithWorkers,
)
from .declaring import argument, option, request, shared
from .values import Duration, FilePath, TimeLimit


@shared
class Trains(OnDevice, WithPrecision, InProcesses, WithWorkers, Settings, Quiet, Json):
    """Commands that train a model and leave a run directory."""

    global_batch: int | None = option(
        None,
        help="Images per optimizer step, over all processes.",
        sets="global_batch",
        names=("--batch", "--batch-size", "--batches", "--device-batch"),
        group="schedule",
    )
    seed: int | None = option(
        None, help="Seed of the initial weights, the order of images and augmentation.", sets="seed", group="schedule"
    )
    freeze: tuple[str, ...] = option(
        (),
        help="Do not train layers whose names start with this, such as layer1; backbone: train the classifier only. "
        "Repeatable.",
        metavar="PREFIX",
        repeats=True,
        sets="model.freeze",
        group="model",
        advanced=True,
    )
    max_bad_images: str | None = option(
        None,
        help="How many unreadable images to replace before the run fails, such as 20, or 0.1% of the images.",
        metavar="N|PERCENT%",
        sets="data.max_bad_images",
        group="data",
        advanced=True,
    )
    max_time: TimeLimit | None = option(
        None,
        help="Stop before this time since the start of the command is over (90s, 15m, 3h50m, 1d or 03:50:00), while "
        "there is time for one more step and a checkpoint. Exit code 75; the same command resumes. At least one step "
        "is trained. auto: until the Slurm job ends (SLURM_JOB_END_TIME).",
        sets="limits.max_time",
        group="run",
        advanced=True,
    )
    out: FilePath = option(
        "runs",
        help="Folder in which the run directory is created, or searched to resume a run.",
        metavar="DIR",
        names=("-o", "--output"),
        completes=("folder",),
        group="run",
    )
    explain: bool = option(
        False,
        help="Do not train: print what follows from the settings, with the reasons and all warnings.",
        names=("--dry-run",),
        edge="shell",
        group="run",
    )
    tensorboard: bool = option(
        True,
        help="Write TensorBoard event files into the run directory if the package is installed.",
        group="output",
        advanced=True,
    )


@request("train")
class Train(Trains, WithMode, Divergence):
    """Train a model with a recipe. Without a recipe: on built-in data, about a minute on two cores.

    After an interruption (Ctrl-C, SIGTERM, a time limit, a crash) the same command resumes the run.

    Examples:
        vernier train
        vernier train mine.toml --data photos --epochs 20
        vernier train nvidia-resnet50-90e --data ~/imagenet --device cuda --procs 8 --precision bf16
    """

    recipe: FilePath | None = argument(
        None,
        help="A built-in recipe (see `vernier recipes`), a model (see `vernier models`; plain settings) or a .toml "
        "file of your own.",
        default="shapes-quick",
        metavar="[RECIPE]",
        completes=("recipe", "model", "file"),
    )
    data: FilePath | None = option(
        None,
        help="A built-in data set, or a folder with train/ and val/ (one folder per class).",
        default="that of the recipe",
        metavar="NAME|PATH",
        sets="data.source",
        names=("--dataset",),
        completes=("data", "folder"),
        group="data",
    )
    model: str | None = option(
        None,
        help="Another model than the recipe's, as published: its own width and image size (see `vernier models`).",
        default="that of the recipe",
        metavar="MODEL",
        sets="model.name",
        names=("--arch",),
        completes=("model",),
        group="model",
    )
    weights: FilePath | None = option(
        None,
        help="Start from this weights file (safetensors or torch), named as in torchvision, timm, NVIDIA's or Habana's "
        "code; or from published weights by name, fetched once: torchvision:resnet50-v2.",
        metavar="FILE|NAME",
        sets="model.weights",
        completes=("file",),
        group="model",
    )
    backbone_weights: FilePath | None = option(
        None,
        help="For detectors: a classifier's weights, file or name, for the backbone.",
        metavar="FILE|NAME",
        sets="model.backbone_weights",
        completes=("file",),
        group="model",
        advanced=True,
    )
    reset_head: bool = option(
        False,
        help="Start with a new classifier layer instead of that of the weights, for other classes.",
        sets="model.reset_head",
        group="model",
        advanced=True,
    )
    epochs: float | None = option(
        None,
        help="Number of epochs; warm-up, milestones, decay and progressive resizing scale with it.",
        default="that of the recipe",
        sets="schedule.epochs",
        group="schedule",
    )
    lr: float | None = option(
        None,
        help="Peak learning rate, used as given for any batch size.",
        default="that of the recipe",
        sets="optim.lr",
        names=("--learning-rate",),
        group="schedule",
    )
    max_steps: int | None = option(
        None,
        help="Stop after this many steps; the schedule stays that of the epochs.",
        sets="limits.max_steps",
        group="schedule",
        advanced=True,
    )
    steps: int | None = option(
        None,
        help="Train this many steps, also more than the epochs have. The schedule stays that of the epochs; beyond it, "
        "the learning rate stays at its last value. Epochs of another length: the setting data.epoch_images.",
        sets="schedule.steps",
        names=("--num-steps",),
        group="schedule",
        advanced=True,
    )
    max_eval_steps: int | None = option(
        None, help="Evaluate on this many batches only.", sets="limits.max_eval_steps", group="schedule", advanced=True
    )
    train_only: bool = option(False, help="Do not evaluate.", group="schedule", advanced=True)
    train_accuracy: bool = option(
        False,
        help="Also record top-1 and top-5 of the training batches, in percent. An image mixed from two (MixUp, CutMix) "
        "counts for each label by its fraction.",
        sets="limits.train_accuracy",
        group="output",
        advanced=True,
    )
    allow_slow: bool = option(
        False,
        help="Allow a precision that this device has no hardware for.",
        sets="machine.allow_slow",
        group="machine",
        advanced=True,
    )
    deterministic: bool = option(
        False,
        help="Make the run bit-identical when it is repeated on the same machine, or refuse.",
        sets="machine.deterministic",
        group="machine",
        advanced=True,
    )
    resume: FilePath | None = option(
        None,
        help="auto: the newest run of this recipe in the output folder; never: always a new run; or a run directory. A "
        "checkpoint.pth.tar of NVIDIA's or a checkpoint.pth of Habana's code starts a new run with its weights, "
        "momentum, epoch and best accuracy.",
        default="a run of the same settings that was interrupted",
        metavar="auto|never|PATH",
        completes=("run",),
        group="run",
    )
    config: FilePath | None = option(
        None,
        help="A run's config.json, to repeat it.",
        metavar="FILE",
        completes=("file",),
        group="run",
        advanced=True,
    )
    smoke: bool = option(
        False,
        help="Try the recipe: two steps of eight rendered 64-pixel images in a narrow model, one evaluation. Run "
        "directory and output are marked as a smoke run.",
        group="run",
    )
    checkpoints: bool = option(
        True,
        help="Save checkpoints. Without them a finished run leaves its results, but no weights; a signal still saves "
        "one, to resume from.",
        group="run",
        advanced=True,
    )
    profile_steps: str | None = option(
        None,
        help="Profile steps A to B, both included: kernel table, trace, memory (see `vernier profile`).",
        metavar="A:B",
        group="run",
        advanced=True,
    )
    print_every: int | None = option(
        None,
        help="Print a line, and record an event, every N steps.",
        default="a line every 5 seconds",
        sets="limits.log_every_steps",
        names=("--print-freq",),
        group="output",
        advanced=True,
    )
    track: tuple[Literal["wandb", "mlflow"], ...] = option(
        (),
        help="Also log to Weights & Biases or MLflow. Repeatable.",
        metavar="wandb|mlflow",
        repeats=True,
        group="output",
        advanced=True,
    )
    raport: FilePath | None = option(
        None,
        help="Also write NVIDIA's raport.json (2019) to this file when the run ends.",
        metavar="FILE",
        names=("--raport-file",),
        completes=("file",),
        group="output",
        advanced=True,
    )
    dllogger: FilePath | None = option(
        None,
        help="Also write NVIDIA's DLLogger lines (since 2020) to this file when the run ends.",
        metavar="FILE",
        completes=("file",),
        group="output",
        advanced=True,
    )


@request("finetune")
class Finetune(Trains):
    """Fine-tune a classifier or a detector on your own photographs, without setting anything.

    Looks at the folder (one folder per class, or boxes as COCO, Pascal VOC or YOLO; with or without train/ and val/),
    chooses model, image size, schedule, freezing and batch from the images and this machine, and prints the reasons and
    the expected time. Trains the new layers first, then all; stops when the held-out images show no gain; ends with the
    result, a report and an exported model. After an interruption the same command resumes the run.

    Examples:
        vernier finetune photos
        vernier finetune photos --weights torchvision:resnet50-v2 --time 30m
        vernier finetune photos --explain
    """

    folder: FilePath = argument(
        help="Your photographs: one folder per class, or images with boxes.", metavar="FOLDER", completes=("folder",)
    )
    task: Literal["auto", "classes", "boxes"] = option(
        "auto",
        help="What to learn. auto: boxes if there are annotations of boxes and no class folders, otherwise classes.",
        group="data",
    )
    weights: FilePath | None = option(
        None,
        help="Weights to start from: a file (safetensors or torch), published ones by name, fetched once "
        "(torchvision:resnet50-v2), or none: from scratch.",
        default="published ones that suit this machine",
        metavar="FILE|NAME|none",
        sets="model.weights",
        completes=("file",),
        group="model",
    )
    model: str | None = option(
        None,
        help="Another model than that of the weights (see `vernier models`).",
        default="that of the weights",
        metavar="MODEL",
        sets="model.name",
        names=("--arch",),
        completes=("model",),
        group="model",
        advanced=True,
    )
    image_px: int | None = option(
        None,
        help="Side of the images for the model, in pixels.",
        default="chosen from the images and the weights",
        sets="data.image_px",
        names=("--imgsz", "--image-size", "--size"),
        group="model",
        advanced=True,
    )
    time: Duration = option(
        "10m",
        help="How long training should take, about; the number of epochs follows from it, estimated from FLOPs.",
        above=0,
        names=("--minutes",),
        bare="m",
        group="schedule",
    )
    epochs: float | None = option(
        None,
        help="Number of epochs, those of the head warm-up included.",
        default="as many as the time allows",
        sets="schedule.epochs",
        group="schedule",
    )
    lr: float | None = option(
        None,
        help="Peak learning rate of the new layers.",
        default="chosen from the model",
        sets="optim.lr",
        names=("--learning-rate",),
        group="schedule",
        advanced=True,
    )
    resume: FilePath | None = option(
        None,
        help="auto: the newest run of the same settings in the output folder; never: always a new run; or a run "
        "directory.",
        default="a run of the same settings that was interrupted",
        metavar="auto|never|PATH",
        completes=("run",),
        group="run",
    )
