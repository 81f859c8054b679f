"""The request of `train`, and what every command that trains a model takes."""

from vernier.config.settings import OnCorruption, OnDivergence, Tail

from .common import (
    InProcesses,
    Json,
    OnDevice,
    Quiet,
    Settings,
    WithMode,
    WithPrecision,
    WithWorkers,
)
from .declaring import Request, argument, option, request, shared
from .values import Code, DataPath, FilePath, TimeLimit


@shared
class Trains(OnDevice, WithPrecision, InProcesses, WithWorkers, Settings, Quiet, Json):
    """Commands that train a model and leave a run directory."""

    global_batch: int | None = option(
        None,
        "Images per optimizer step, over all processes.",
        sets="global_batch",
        names=("--batch", "--batch-size", "--batches", "--device-batch"),
        group="schedule",
    )
    seed: int | None = option(
        None, "Seed of the initial weights, the order of images and augmentation.", sets="seed", group="schedule"
    )
    freeze: tuple[str, ...] = option(
        (),
        "Do not train layers whose names start with this, such as layer1; backbone: train the classifier only. "
        "Repeatable.",
        metavar="PREFIX",
        repeats=True,
        sets="model.freeze",
        group="model",
        advanced=True,
    )
    max_bad_images: str | None = option(
        None,
        "How many unreadable images to replace before the run fails, such as 20, or 0.1% of the images.",
        metavar="N|PERCENT%",
        sets="data.max_bad_images",
        group="data",
        advanced=True,
    )
    max_time: TimeLimit | None = option(
        None,
        "Stop before this time since the start of the command is over (90s, 15m, 3h50m, 1d or 03:50:00), while "
        "there is time for one more step and a checkpoint. Exit code 75; the same command resumes. At least one step "
        "is trained. auto: until the Slurm job ends (SLURM_JOB_END_TIME).",
        sets="limits.max_time",
        group="run",
        advanced=True,
    )
    out: FilePath = option(
        "runs",
        "Folder in which the run directory is created, or searched to resume a run.",
        metavar="DIR",
        names=("-o", "--output"),
        group="run",
    )
    explain: bool = option(
        False,
        "Do not train: print what follows from the settings, with the reasons and all warnings.",
        names=("--dry-run",),
        edge="shell",
        group="run",
    )
    tensorboard: bool = option(
        True,
        "Write TensorBoard event files into the run directory if the package is installed.",
        group="output",
        advanced=True,
    )


@shared
class _Divergence(Request):
    """Commands that train."""

    on_divergence: OnDivergence | None = option(
        None,
        "What to do on NaN or Inf in loss, gradients or weights. stop: end the run; its events name the step, the "
        "process and the images. rollback: continue from the last checkpoint with half the learning rate, at most "
        "three times (limits.rollback_lr, limits.max_rollbacks).",
        default="stop",
        sets="limits.on_divergence",
        group="run",
        advanced=True,
    )
    on_corruption: OnCorruption | None = option(
        None,
        "What to do if a device computed wrong: processes hold different weights, or a spot check differs. stop: end "
        "the run. rollback: repeat the steps from the last checkpoint. warn: continue.",
        default="stop",
        sets="audit.on_corruption",
        group="run",
        advanced=True,
    )


@request("train")
class Train(Trains, WithMode, _Divergence):
    """Train a model with a recipe. Without a recipe: on built-in data, about a minute on two cores.

    After an interruption (Ctrl-C, SIGTERM, a time limit, a crash) the same command resumes the run.

    Examples:
        vernier train
        vernier train mine.toml --data photos --epochs 20
        vernier train nvidia-resnet50-90e --data ~/imagenet --device cuda --procs 8 --precision bf16
    """

    recipe: FilePath | None = argument(
        None,
        "A built-in recipe (see `vernier recipes`), a model (see `vernier models`; plain settings) or a .toml "
        "file of your own.",
        default="shapes-quick",
        metavar="[RECIPE]",
    )
    data: DataPath | None = option(
        None,
        "A built-in data set, a folder with train/ and val/ (one folder per class), or your own: module:name.",
        default="that of the recipe",
        metavar="NAME|PATH",
        sets="data.source",
        names=("--dataset",),
        group="data",
    )
    model: Code | None = option(
        None,
        "Another model than the recipe's, as published: its own width and image size (see `vernier models`).",
        default="that of the recipe",
        metavar="MODEL",
        sets="model.name",
        names=("--arch",),
        group="model",
    )
    loss: Code | None = option(
        None,
        "cross-entropy, bce, or your own as module:name: f(logits, labels).",
        default="that of the recipe",
        sets="loss.kind",
        group="model",
        advanced=True,
    )
    transforms: tuple[Code, ...] = option(
        (),
        "A transform of your own for training images, module:name: f(image, target, rng). Repeatable.",
        metavar="MODULE:NAME",
        repeats=True,
        sets="augment.extra",
        names=("--transform",),
        group="data",
        advanced=True,
    )
    optimizer: Code | None = option(
        None,
        "The optimizer by name, or your own class: torch.optim:NAdam(betas=(0.9, 0.98)).",
        default="that of the recipe",
        sets="optim.name",
        group="schedule",
        advanced=True,
    )
    schedule: Code | None = option(
        None,
        "Shape of the learning rate after the warm-up by name, or your own, module:name: f(progress).",
        default="that of the recipe",
        sets="schedule.kind",
        group="schedule",
        advanced=True,
    )
    metrics: tuple[Code, ...] = option(
        (),
        "A metric of your own, module:name: f(logits, labels) of the whole validation set. Repeatable.",
        metavar="MODULE:NAME",
        repeats=True,
        sets="eval.metrics",
        names=("--metric",),
        group="output",
        advanced=True,
    )
    observers: tuple[Code, ...] = option(
        (),
        "Code of your own that gets every event of the run, module:name: f(event). Repeatable.",
        metavar="MODULE:NAME",
        repeats=True,
        names=("--observer",),
        group="output",
        advanced=True,
    )
    weights: FilePath | None = option(
        None,
        "Start from this weights file (safetensors or torch), named as in torchvision, timm, NVIDIA's or Habana's "
        "code; or from published weights by name, fetched once: torchvision:resnet50-v2.",
        metavar="FILE|NAME",
        sets="model.weights",
        group="model",
    )
    backbone_weights: FilePath | None = option(
        None,
        "For detectors: a classifier's weights, file or name, for the backbone.",
        metavar="FILE|NAME",
        sets="model.backbone_weights",
        group="model",
        advanced=True,
    )
    reset_head: bool = option(
        False,
        "Start with a new classifier layer instead of that of the weights, for other classes.",
        sets="model.reset_head",
        group="model",
        advanced=True,
    )
    epochs: float | None = option(
        None,
        "Number of epochs; warm-up, milestones, decay and progressive resizing scale with it.",
        default="that of the recipe",
        sets="schedule.epochs",
        group="schedule",
    )
    lr: float | None = option(
        None,
        "Peak learning rate, used as given for any batch size.",
        default="that of the recipe",
        sets="optim.lr",
        names=("--learning-rate",),
        group="schedule",
    )
    schedule_tail: Tail | None = option(
        None,
        "The learning rate after a finished run, extended by --resume RUN with more epochs or steps. cosine: where a "
        "cosine of the whole new length would be; constant: the last rate; restart: a new cosine from the peak.",
        default="cosine",
        group="schedule",
        advanced=True,
    )
    max_steps: int | None = option(
        None,
        "Stop after this many steps; the schedule stays that of the epochs.",
        sets="limits.max_steps",
        group="schedule",
        advanced=True,
    )
    steps: int | None = option(
        None,
        "Train this many steps, also more than the epochs have. The schedule stays that of the epochs; beyond it, "
        "the learning rate stays at its last value. Epochs of another length: the setting data.epoch_images.",
        sets="schedule.steps",
        names=("--num-steps",),
        group="schedule",
        advanced=True,
    )
    max_eval_steps: int | None = option(
        None,
        "Evaluate on a fair sample of this many batches only: every class in proportion, always the same images.",
        sets="limits.max_eval_steps",
        group="schedule",
        advanced=True,
    )
    train_only: bool = option(False, "Do not evaluate.", group="schedule", advanced=True)
    train_accuracy: bool = option(
        False,
        "Also record top-1 and top-5 of the training batches, in percent. An image mixed from two (MixUp, CutMix) "
        "counts for each label by its fraction.",
        sets="limits.train_accuracy",
        group="output",
        advanced=True,
    )
    allow_slow: bool = option(
        False,
        "Allow a precision that this device has no hardware for.",
        sets="machine.allow_slow",
        advanced=True,
    )
    deterministic: bool = option(
        False,
        "Make the run bit-identical when it is repeated on the same machine, or refuse.",
        sets="machine.deterministic",
        advanced=True,
    )
    resume: FilePath | None = option(
        None,
        "auto: the newest run of this recipe in the output folder; never: always a new run; or a run directory. With "
        "more epochs or steps, a finished run is extended: a new run continues from its last checkpoint. A "
        "checkpoint.pth.tar of NVIDIA's or a checkpoint.pth of Habana's code starts a new run with its weights, "
        "momentum, epoch and best accuracy.",
        default="a run of the same settings that was interrupted",
        metavar="auto|never|PATH",
        group="run",
    )
    config: FilePath | None = option(
        None,
        "A run's config.json, to repeat it.",
        metavar="FILE",
        group="run",
        advanced=True,
    )
    smoke: bool = option(
        False,
        "Try the recipe: two steps of eight rendered 64-pixel images in a narrow model, one evaluation. Run "
        "directory and output are marked as a smoke run.",
        group="run",
    )
    checkpoints: bool = option(
        True,
        "Save checkpoints. Without them a finished run leaves its results, but no weights; a signal still saves "
        "one, to resume from.",
        group="run",
        advanced=True,
    )
    profile_steps: str | None = option(
        None,
        "Profile steps A to B, both included: kernel table, trace, memory (see `vernier profile`).",
        metavar="A:B",
        group="run",
        advanced=True,
    )
    print_every: int | None = option(
        None,
        "Print a line, and record an event, every N steps.",
        default="a line every 5 seconds",
        # The setting has 0 for its default; who types 0 expects no line at all, which is --quiet.
        low=1,
        sets="limits.log_every_steps",
        names=("--print-freq",),
        group="output",
        advanced=True,
    )
    track: tuple[str, ...] = option(
        (),
        "Also log to Weights & Biases (wandb), MLflow (mlflow) or another installed tracker. TensorBoard's "
        "files are written anyway. Repeatable.",
        metavar="wandb|mlflow",
        repeats=True,
        group="output",
        advanced=True,
    )
    raport: FilePath | None = option(
        None,
        "Also write NVIDIA's raport.json (2019) to this file when the run ends.",
        metavar="FILE",
        names=("--raport-file",),
        group="output",
        advanced=True,
    )
    dllogger: FilePath | None = option(
        None,
        "Also write NVIDIA's DLLogger lines (since 2020) to this file when the run ends.",
        metavar="FILE",
        group="output",
        advanced=True,
    )
