"""The settings: every field with its default, its range and one line of help.

Reading and writing them is `config.parsing`, rules between them are `config.checks`.
"""

import math
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin

from vernier.frozen import frozen
from vernier.plugins import load_kinds, plugin_names

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Mode = Literal["eager", "compile", "trace"]
Allocator = Literal["keep", "huge", "system"]
OnDivergence = Literal["stop", "rollback"]
OnCorruption = Literal["stop", "rollback", "warn"]

ENGINES, EXPORT_FORMATS = "vernier.engines", "vernier.export_formats"
DECODERS, LOADERS = "vernier.decoders", "vernier.loaders"
"""Decoders of windows, which give the same pixels as libjpeg-turbo, and readers of whole training batches."""
CONVOLUTIONS = "vernier.convolutions"
REDUCTIONS = "vernier.reductions"
LOSSES, SCHEDULES = "vernier.losses", "vernier.schedules"
BUILT_IN_LOSSES = ("cross-entropy", "bce")
DATA_SOURCES, TRANSFORMS, METRICS = "vernier.data_sources", "vernier.transforms", "vernier.metrics"
EXTENSIONS = "vernier.extensions"
"""The entry point of what continues finished runs: `extend` changes the settings, `fork` makes the run directory."""
MODEL_ORIGINS, OWN_MODELS = "vernier.model_origins", "own"
"""Entry points by the prefix of names: `timm` finds `timm:resnet18`, and `own` what has no prefix of an origin."""


class Offered(NamedTuple):
    """The values of a setting that plug-ins add to: Vernier's own, then the names in groups of entry points."""

    own: tuple[str, ...]
    groups: tuple[str, ...]
    code: bool = False
    """Whether a reference to a user's code (`vernier.own_code`) is a value, too."""

    def names(self) -> tuple[str, ...]:
        return (*self.own, *plugin_names(*self.groups))


Engine = Annotated[str, Offered(("torch",), (ENGINES,))]
ExportFormat = Annotated[str, Offered(("safetensors", "torchvision"), (EXPORT_FORMATS,))]


def choices_of(hint: Any) -> tuple[Any, ...]:
    """The values of a setting of this type, if it has only a few; empty for any other."""
    if get_origin(hint) is Annotated:
        offered: Offered = get_args(hint)[1]
        return offered.names()
    return get_args(hint) if get_origin(hint) is Literal else ()


def option(default: Any, doc: str, *, low: float = -math.inf, high: float = math.inf, above: float = -math.inf) -> Any:
    """A configured field: its default, one line of help, and its range (`above` excludes its own value)."""
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "above": above})


SMALL_PX = 128
"""Images below this are not cropped for evaluation."""


def short_side_of(eval_px: int) -> int:
    """The usual short side before a centre crop: 256 for 224 pixels; small images are not cropped."""
    return 256 * eval_px // 224 if eval_px >= SMALL_PX else eval_px


@frozen
class Model:
    """The model."""

    name: str = option("resnet50", "name of the network; `vernier models` lists them")
    num_classes: int | None = option(None, "number of classes; left out: taken from the data", low=1)
    init: Literal["fan-in", "fan-out", "tf"] = option(
        "fan-out", "He initialisation of convolutions, or TensorFlow's variance scaling"
    )
    zero_gamma: bool = option(False, "start the last batch norm of every block at zero")
    stem: Literal["default", "imagenet", "small", "small-pool"] = option(
        "default", "small: 3x3 stride 1; small-pool: and a 2x2 pool"
    )
    # Below 8 channels, oneDNN's strided 1x1 convolution crashes in channels-last memory (torch 2.13, CPU).
    width: int | None = option(None, "channels of the first stage; left out: the model's own", low=8)
    box_sizes: tuple[float, ...] = option(
        (),
        "detectors: side of the default boxes at the first, second and last level, as shares of the image; "
        "empty: the model's own",
    )
    drop_path: float = option(0.0, "stochastic depth: probability that a sample skips the last block", low=0, high=0.99)
    batch_norm_images: int | None = option(
        None, "images that share batch-norm statistics; 0: all of a micro-step; left out: those of one process", low=0
    )
    blurpool: bool = option(False, "blur before strided convolutions, as FFCV's ResNets do")
    padding: Literal["torch", "tf", "tf-fixed"] = option(
        "torch",
        "ResNets, strided layers: torch pads all sides alike; tf: TensorFlow's SAME; tf-fixed: SAME only in pooling "
        "and in extra levels of a detector",
    )
    unused_outputs: int = option(0, "extra outputs without a class; TensorFlow's networks have 1", low=0, high=1000)
    weights: str = option("", "file with starting weights")
    backbone_weights: str = option("", "detectors: file with a classifier's weights, for the backbone only")
    checkpoint: str = option("", "training checkpoint of NVIDIA's or Habana's code to resume from")
    reset_head: bool = option(False, "do not load the classifier layer from the file; start a new one")
    freeze: tuple[str, ...] = option((), "layers to freeze, by the start of their name; backbone: all but the head")
    freeze_statistics: bool = option(
        False, "batch norms of the backbone keep the statistics of the starting weights; for few images per step"
    )


@frozen
class Data:
    """The images, and how they are resized and normalised."""

    source: str = option(
        "", "a built-in data set (shapes, fashion-mnist, cifar10), a folder, an address, or your own, module:name"
    )
    image_px: int = option(224, "side of a training image, in pixels", low=8, high=4096)
    eval_px: int = option(0, "side of an evaluation image, in pixels; left out: image_px", low=8, high=4096)
    eval_short_side_px: int = option(
        0,
        "evaluation: short side before the centre crop, in pixels; left out: 256/224 of eval_px, below 128 px eval_px",
        low=8,
        high=8192,
    )
    mean: tuple[float, ...] = option((0.485, 0.456, 0.406), "per channel, images in 0..1")
    std: tuple[float, ...] = option(
        (0.229, 0.224, 0.225), "per channel, images in 0..1; 1/255: mean only, as TensorFlow"
    )
    interpolation: Literal["bilinear", "bicubic"] = option(
        "bilinear", "antialiased resizing, in training and evaluation"
    )
    last_batch: Literal["drop", "fill"] = option(
        "drop",
        "last, incomplete batch of an epoch: leave it out, or fill it with images of that epoch once more; steps per "
        "epoch are then rounded up",
    )
    val_share: float = option(
        0.1, "a folder without train/ and val/: share of each class used for validation", above=0, high=0.9
    )
    hold_out: bool = option(
        False, "validate on a part of the training images (val_share), also where there are other splits"
    )
    epoch_images: int | None = option(
        None, "images that make up an epoch; more than the set has: some several times; left out: all of the set", low=1
    )
    shuffle_shards: int = option(
        0, "shards: shuffle among this many shards at a time, for slow storage; 0: among all", low=0
    )
    scaled_decode: bool = option(
        False,
        "baseline JPEGs, training: let the decoder halve crops of at least twice image_px; changes pixels a little",
    )
    exif: Literal["apply", "ignore"] = option(
        "apply", "apply: turn photographs upright by their EXIF orientation; ignore: use the pixels as they are stored"
    )
    max_bad_images: str = option(
        "1%,3",
        "unreadable images allowed before the run stops: a number, a percentage, or the larger of several, as 1%,3",
    )

    def __post_init__(self) -> None:
        if not self.eval_px:
            object.__setattr__(self, "eval_px", self.image_px)
        if not self.eval_short_side_px:
            object.__setattr__(self, "eval_short_side_px", short_side_of(self.eval_px))


@frozen
class Augment:
    """Augmentation of training images; depends on (seed, epoch, sample) only."""

    crop: Literal["random-resized", "pad", "none", "ssd", "ssd-tf", "ssd-tf-tall"] = option(
        "random-resized",
        "pad: shift within a border of zeros; ssd, ssd-tf: for boxes, as MLPerf's or TensorFlow's SSD; ssd-tf-tall: "
        "ssd-tf of Vernier 0.1 and 0.2, whose windows may have any height",
    )
    crop_trials: int = option(
        1, "ssd: windows tried before another rule is drawn; ssd-tf always tries 50", low=1, high=50
    )
    area: tuple[float, float] = option((0.08, 1.0), "random-resized: fraction of the image's area", above=0, high=1)
    ratio: tuple[float, float] = option((0.75, 4 / 3), "random-resized: width over height", above=0)
    pad_px: int = option(4, "pad: width of the border", low=0, high=64)
    border: Literal["zeros", "reflect"] = option(
        "zeros", "pad: what the border is filled with; reflect: mirrored pixels"
    )
    flip: float = option(0.5, "probability of a horizontal flip", low=0, high=1)
    flip_rule: Literal["random", "alternate"] = option(
        "random", "alternate: a random half of the images is mirrored in even epochs, the other half in odd ones"
    )
    mixup: float = option(0.0, "alpha of MixUp's Beta(alpha, alpha); 0: off", low=0)
    cutmix: float = option(0.0, "alpha of CutMix; with mixup on too, each step picks one at random; 0: off", low=0)
    jitter: Literal["none", "mlperf", "tf"] = option(
        "none", "detectors: brightness, contrast, saturation and hue, as MLPerf's or TensorFlow's SSD"
    )
    policy: Literal["none", "trivial-wide", "rand"] = option("none", "TrivialAugmentWide, or timm's RandAugment")
    rand_ops: int = option(2, "rand: operations per image", low=1, high=8)
    rand_magnitude: float = option(7.0, "rand: mean magnitude, of 10", low=0, high=10)
    rand_std: float = option(0.5, "rand: standard deviation of the magnitude", low=0, high=10)
    erase: float = option(0.0, "probability of erasing a rectangle to the mean colour", low=0, high=1)
    extra: tuple[str, ...] = option(
        (), "transforms of your own, module:name, in this order: f(image, target, rng) returns the image"
    )
    repeats: int = option(1, "repeated augmentation: copies of a sample per batch", low=1, high=64)
    start_px: int | None = option(
        None, "progressive resizing: first image side; image_px is the last", low=8, high=4096
    )
    ramp_epochs: tuple[float, float] = option((0.0, 0.0), "progressive resizing: first and last epoch of the growth")
    phase_px: tuple[int, ...] = option(
        (), "progressive resizing in phases: image sides between start_px and image_px, in order"
    )
    phase_epochs: tuple[float, ...] = option(
        (), "progressive resizing in phases: epochs at which each side after start_px begins, image_px last"
    )


@frozen
class Loss:
    """The loss of classifiers."""

    kind: Annotated[str, Offered(BUILT_IN_LOSSES, (LOSSES,), code=True)] = option(
        "cross-entropy", "bce: binary cross-entropy per class; or your own, module:name: f(logits, labels)"
    )
    label_smoothing: float = option(0.0, "probability mass taken from the true class", low=0, high=0.999)
    smoothing_over: Literal["all", "others"] = option(
        "all", "label smoothing spreads over all K classes, or the other K - 1"
    )
    bce_threshold: float | None = option(None, "bce: mixed targets above this count as 1, others as 0", low=0, high=1)


@frozen
class Detect:
    """Detectors: matching of default boxes in training, and post-processing of predictions."""

    match_iou: float = option(0.5, "a default box matches an object from this overlap (IoU) on", above=0, high=1)
    match: Literal["above", "at-least"] = option("above", "above: as MLPerf's PyTorch; at-least: as TensorFlow's")
    contested: Literal["last", "first"] = option(
        "last", "a default box that several objects overlap most: last, as MLPerf's PyTorch, or first, as TensorFlow's"
    )
    negatives: float = option(3.0, "hard negative mining: background boxes in the loss per matched box", low=0)
    min_score: float = option(0.05, "detections that score below this are dropped", low=0, high=1)
    nms_iou: float = option(
        0.5,
        "non-maximum suppression: overlap (IoU) at which the weaker is dropped",
        above=0,
        high=1,
    )
    max_per_class: int = option(200, "boxes per class that enter non-maximum suppression, best scores first", low=1)
    max_detections: int = option(200, "most detections per image", low=1)


@frozen
class Optim:
    """The optimizer, with the settings that all of them have."""

    name: str = option("sgd", "name of the optimizer, or your own class, module:name(arguments)")
    lr: float = option(0.1, "peak learning rate for a global batch of lr_batch", above=0)
    lr_batch: int | None = option(None, "scale lr by global_batch / lr_batch; left out: do not scale", low=1)
    momentum: float = option(0.9, "no dampening; of Adam and LAMB: beta 1", low=0, high=0.9999)
    weight_decay: float = option(1e-4, "strength of weight decay", low=0)
    decay_rule: Literal["norm-and-bias", "norm-only", "vectors", "nvidia-name", "all"] = option(
        "norm-and-bias",
        "what is exempt from weight decay; vectors: all parameters of one dimension, as timm; nvidia-name: names with "
        "'bn'; all: nothing",
    )
    clip_norm: float = option(0.0, "clip the global gradient norm to this; 0: off", low=0)
    backbone_lr_share: float = option(1.0, "learning rate of the backbone, as a share of the head's", above=0, high=1)
    layer_decay: float = option(
        1.0, "layer-wise learning rates: factor from one layer to the one below it; 1: off", above=0, high=1
    )

    buffers: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    """Names of the tensors that it keeps for each weight, of the same size: in memory, and in checkpoints."""
    linear_scaling: ClassVar[bool] = False
    """Whether the learning rate of another global batch is in proportion to it."""

    def check(self, *, detector: bool) -> None:
        """Refuse settings that contradict each other. Raises ConfigError."""

    def groups(self, model: Any) -> Any:
        """Parameter groups of its own, with `lr_share` of the schedule's rate; None: by weight decay and depth."""

    def build(self, groups: Any, lr: float, *, fused: bool) -> Any:
        """A `torch.optim.Optimizer`, `fused` if the device can do that; None: `update` is called in each step."""

    def update(self, weights: Any, states: Any, group: Any) -> None:
        """Change weights that have a gradient, all of one group; `states[weight]` has the buffers, zeros at first."""
        raise NotImplementedError


OPTIMIZERS = "vernier.optimizers"
"""The entry-point group of optimizers of other packages."""


def optimizers() -> dict[str, type[Optim]]:
    """The settings of every optimizer by its name: Vernier's own, one file each, then those of other packages."""
    return load_kinds("vernier.optim.kinds", OPTIMIZERS, Optim)  # by name: these files import this one


Tail = Literal["cosine", "constant", "restart"]


@frozen
class Schedule:
    """Learning-rate schedule, in epochs."""

    kind: Annotated[
        str,
        Offered(("cosine", "step", "list", "linear", "polynomial", "mlperf", "constant"), (SCHEDULES,), code=True),
    ] = option(
        "cosine",
        "shape after the warm-up; mlperf: the polynomial of its LARS submissions; or your own, module:name: "
        "f(progress) is the fraction of the peak rate",
    )
    epochs: float = option(90.0, "number of epochs", above=0, high=1e9)
    steps: int | None = option(
        None, "train this many steps instead; beyond the epochs' worth the rate stays at its last value", low=1
    )
    warmup_epochs: float = option(0.0, "length of the warm-up", low=0)
    head_epochs: float = option(
        0.0, "train the head alone for this many epochs at first, with the backbone frozen; then all layers", low=0
    )
    warmup_start: float = option(0.0, "line: share of the peak rate at step 0; 1/n is Goyal's form", low=0, high=1)
    warmup_form: Literal["line", "stairs"] = option(
        "line", "line: rises every step; stairs: every epoch, (e+1)/W, as NVIDIA's"
    )
    unit: Literal["step", "epoch"] = option("step", "epoch: the rate is constant within an epoch")
    origin: Literal["after-warmup", "start"] = option("after-warmup", "where the decay starts counting")
    milestones: tuple[float, ...] = option(
        (30.0, 60.0, 80.0), "step: epochs at which the rate drops by gamma. list: epochs at which the next share begins"
    )
    shares: tuple[float, ...] = option((), "list: share of the peak rate at first and from each milestone on")
    gamma: float = option(0.1, "step: factor at each milestone", above=0, high=1)
    power: float = option(2.0, "polynomial, mlperf: exponent", above=0)
    decay_epochs: float | None = option(None, "mlperf: epoch at which end_lr is reached; left out: epochs", above=0)
    end_lr: float = option(0.0, "cosine, linear, polynomial, mlperf: final learning rate at lr_batch", low=0)
    extends: str = option("", "the finished run that this one continues; written when one is extended, as those below")
    extends_step: int = option(0, "its last checkpoint, with which this run begins", low=0)
    extends_weights: str = option("", "SHA-256 of the weights in that checkpoint")
    extends_rate: float = option(0.0, "its last learning rate", low=0)
    tail: Tail = option(
        "cosine",
        "the rate from there on: where a cosine of the whole new length would be; constant: extends_rate; restart: a "
        "cosine from the peak",
    )


@frozen
class Ema:
    """Exponential moving average (EMA) of the weights; evaluation then uses the average."""

    decay: float = option(0.0, "decay per update; 0: no average", low=0, high=0.999999)
    warmup: bool = option(True, "use min(decay, (1 + t) / (10 + t)) at update t")
    every_steps: int = option(1, "steps per update, counted from the first of each epoch", low=1)
    copy_epochs: float = option(0.0, "copy the weights instead of averaging for this many epochs", low=0)


@frozen
class Eval:
    """When to evaluate, and when to stop early."""

    every_epochs: float = option(1.0, "0: never (train only)", low=0)
    offset_epochs: float = option(0.0, "evaluate at offset, offset + every, ...", low=0)
    at_epochs: tuple[float, ...] = option((), "evaluate after these epochs and at the end, instead of at regular ones")
    metrics: tuple[str, ...] = option(
        (), "classifiers: metrics of your own, module:name: f(logits, labels) of the whole set is a number"
    )
    best: str = option("", "the metric that decides which weights are best, higher is better; left out: top1 or AP")
    flip_tta: bool = option(False, "test-time augmentation: add the scores of the mirrored image; shown in results")
    patience: int | None = option(
        None, "stop after this many evaluations in a row without a better one; not counted while the head trains", low=1
    )
    target_top1: float | None = option(None, "classifiers: stop once top-1 reaches this, in percent", low=0, high=100)
    target_ap: float | None = option(None, "detectors: stop once COCO's AP reaches this, 0 to 1", low=0, high=1)


@frozen
class Published:
    """A published result of a recipe."""

    mean: float = option(0.0, "percent; COCO's AP: 0 to 1")
    sd: float | None = option(None, "standard deviation over runs, in the same unit", low=0)
    n: int | None = option(None, "number of runs", low=1)
    metric: str = option("top1", "name of the figure")
    precision: Literal["", "fp32", "tf32", "mixed"] = option("", "arithmetic, where stated")
    device: str = option("", "device it was measured on")
    devices: int | None = option(None, "number of devices", low=1)
    global_batch: int | None = option(None, "global batch, where it is not the recipe's", low=1)
    note: str = option("", "version and other circumstances")
    samples: int = option(50_000, "images it was measured on; ImageNet's validation set has 50,000", low=1)
    source: str = option("", "citation: page, table or URL")


@frozen
class Recipe:
    """What to train and how. Says nothing about hardware."""

    name: str = option("custom", "name of the run")
    about: str = option("", "one line")
    source: str = option("", "citation, with revision")
    seed: int = option(1, "initial weights, order, augmentation", low=0, high=2**31 - 1)
    global_batch: int = option(256, "images per optimiser step, over all processes", low=1)
    virtual_shards: int | None = option(
        None,
        "exact reduction: parts of the global batch, each with its own gradient and batch-norm statistics; left out: "
        "the first of 12, 8, 6, 4, 3, 2, 1 that divides the batch",
        low=1,
        high=65536,
    )
    model: Model = Model()
    data: Data = Data()
    augment: Augment = Augment()
    loss: Loss = Loss()
    detect: Detect = Detect()
    optim: Optim = field(default_factory=lambda: optimizers()[Optim.name]())
    schedule: Schedule = Schedule()
    ema: Ema = Ema()
    eval: Eval = Eval()
    published: tuple[Published, ...] = field(default=(), metadata={"doc": "published results"})


@frozen
class Machine:
    """Where to run. Says nothing about learning."""

    device: str = option("auto", "auto: the best one of this machine; or cpu, cuda, hpu, mps, xpu, or a plug-in's")
    procs: int = option(1, "number of processes, one per device", low=1)
    precision: Precision = option("fp32", "arithmetic of the network")
    allow_slow: bool = option(False, "allow a precision that this device has no hardware for")
    loss_scaling: Literal["dynamic", "static"] = option("dynamic", "fp16: static keeps loss_scale")
    loss_scale: float = option(65536.0, "fp16: first factor of the loss", above=0)
    loss_scale_growth_steps: int = option(2000, "fp16, dynamic: steps without overflow until the scale doubles", low=1)
    mode: Mode = option("eager", "how the network is executed; graph is another name of compile")
    compile: Literal["default", "reduce-overhead", "max-autotune"] = option(
        "default",
        "mode compile: reduce-overhead replays CUDA graphs, max-autotune also measures kernels while compiling; for "
        "devices that PyTorch's inductor compiles for",
    )
    engine: Engine = option(
        "torch", "what runs the network in eval, predict and bench infer; auto: the fastest here, measured first"
    )
    int8: bool = option(False, "eval, predict and bench infer: INT8, calibrated on the images; not with engine = torch")
    allow_lower_precision: bool = option(False, "engine = auto: measure bf16 too, and use it where it is the fastest")
    deterministic: bool = option(False, "only deterministic operations; refuse where there is none")
    accumulation: int = option(1, "micro-steps per optimiser step", low=1)
    process_batch: int | None = option(None, "largest batch per process; accumulation follows from it", low=1)
    eval_batch: int = option(256, "images per evaluation step", low=1)
    backend: Annotated[str, Offered(("auto", "native"), (DECODERS, LOADERS))] = option(
        "auto",
        "decodes and resizes training images; compiled: the same pixels, JPEGs faster; auto: compiled if possible",
    )
    workers: int | None = option(
        None,
        "loader threads per process; 0: the training thread loads; left out: 2 with a CPU, otherwise as many as decode "
        "3,000 images per second here, but one core stays free",
        low=0,
        high=256,
    )
    prefetch: int = option(3, "batches prepared ahead", low=1, high=64)
    cache_share: float = option(
        0.25, "cache decoded images when all fit into this share of free memory; 0: never", low=0, high=0.9
    )
    shard_cache_gb: float | None = option(
        None,
        "data at an address: largest size of the local cache, in GB; 0: none; left out: $VERNIER_SHARD_CACHE_GB or 50",
        low=0,
        high=1e6,
    )
    threads: int | None = option(None, "compute threads per process; left out: all cores shared evenly", low=1)
    max_cpus: int | None = option(None, "most cores per process; left out: an even share", low=1)
    allocator: Allocator = option(
        "keep", "CPU memory: keep reuses freed blocks, huge also asks for huge pages, system is the C library's own"
    )
    channels_last: bool = option(True, "memory layout of images and weights")
    convolution: Annotated[str, Offered(("auto", "torch"), (CONVOLUTIONS,))] = option(
        "auto",
        "CPU, fp32: winograd trains 3 x 3 convolutions with a quarter of the products, and rounds differently; auto: "
        "winograd for large layers on a CPU with AVX-512",
    )
    check_memory: bool = option(
        True, "refuse a training that surely needs more memory than is free; false: warn and try it"
    )
    activation_checkpointing: bool = option(
        False, "compute the residual blocks again in the backward pass instead of keeping their results: less memory"
    )
    reduction: Annotated[str, Offered(("ddp",), (REDUCTIONS,))] = option(
        "ddp", "how gradients are summed; exact: the same weights, bit for bit, for any number of processes"
    )
    bucket_mb: int | None = option(
        None, "several processes: size of a gradient bucket, in MiB; left out: 25, on Gaudi 256", low=1, high=4096
    )
    batch_norm_statistics: Literal["average", "first"] = option(
        "average",
        "several processes: batch-norm statistics to evaluate and save: the mean over processes, or rank 0's",
    )
    rank_timeout_s: float = option(
        60.0, "several processes: a rank that is silent for this many seconds ends the run", low=1
    )
    step_times: Literal["auto", "each"] = option(
        "auto", "each: wait for the device after every step, where it could not tell the time of a single one"
    )
    telemetry_hz: float = option(10.0, "sensor samples per second; 0: none", low=0, high=1000)


@frozen
class Checkpoint:
    """When checkpoints are saved and which are kept. The last one always is, and one when a signal stops the run."""

    every_epochs: float = option(1.0, "0: not by epochs", low=0)
    every_steps: int = option(0, "0: not by steps", low=0)
    keep_last: int = option(2, "number of newest checkpoints to keep", low=1)
    keep_every_epochs: float = option(0.0, "also keep those at multiples of this many epochs; 0: none", low=0)
    keep_best: bool = option(True, "save and keep the best evaluated checkpoint")
    at_end: bool = option(True, "save one at the end of the run")
    background: bool = option(
        True, "write them while training goes on, from a copy of the weights in memory; false: training waits"
    )


@frozen
class Limits:
    """Where to stop early without changing the schedule, and how often to log."""

    max_steps: int | None = option(None, "stop after this many optimiser steps", low=1)
    max_eval_steps: int | None = option(
        None, "evaluate a fair sample of this many batches only; the result is then marked as not exact", low=1
    )
    max_time: str | None = option(
        None,
        "stop, with a checkpoint, before this time since the start of the command is over: 3h50m; auto: Slurm's",
    )
    log_every_steps: int = option(
        0, "steps per event and printed line; 0: about two events per second, a line every 5 s", low=0
    )
    train_accuracy: bool = option(
        False, "classifiers: record top-1 and top-5 of the training batches; MixUp: hits count by their label's share"
    )
    on_divergence: OnDivergence = option(
        "stop", "when a loss, gradient or weight is no finite number: end the run, or go back to the last checkpoint"
    )
    max_rollbacks: int = option(3, "with on_divergence=rollback: how often before the run ends", low=1)
    rollback_lr: float = option(0.5, "the learning rate is multiplied by this at each rollback", above=0, high=1)
    changed_data: Literal["refuse", "accept"] = option(
        "refuse", "when a run is resumed and its data or code of your own changed: refuse it, or continue and record it"
    )
    smoke: bool = option(False, "a quick test of the settings: its result means nothing and is marked as such")


@frozen
class Audit:
    """Fingerprints: checksums of what is computed, by which a device that computed wrong is found."""

    every_steps: int = option(
        100, "steps between fingerprints of gradients, weights and optimizer, which are recorded; 0: none", low=0
    )
    spot_check: float = option(
        0.0,
        "with machine.reduction=exact: fraction of the virtual shards that a second process computes, too, to compare",
        low=0,
        high=1,
    )
    on_corruption: OnCorruption = option(
        "stop",
        "when processes that must hold equal weights do not: end the run, go back to the last checkpoint, or warn",
    )


@frozen
class Config:
    """All settings of a run. `config.json` holds them, and repeats the run."""

    recipe: Recipe = field(default_factory=Recipe)
    machine: Machine = Machine()
    checkpoint: Checkpoint = Checkpoint()
    limits: Limits = Limits()
    audit: Audit = Audit()
