"""The request of `finetune`."""

from typing import Literal

from vernier.requests.declaring import argument, option, request
from vernier.requests.training import Trains
from vernier.requests.values import Code, Duration, FilePath

from .common import model_option


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

    folder: FilePath = argument(help="Your photographs: one folder per class, or images with boxes.", metavar="FOLDER")
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
        group="model",
    )
    model: Code | None = model_option(
        None,
        help="Another model than that of the weights (see `vernier models`), or your own: mynets:Net.",
        default="that of the weights",
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
        help="How long training should take, about; the number of epochs follows from it and from a few timed steps.",
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
        group="run",
    )
