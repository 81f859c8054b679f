"""Measured training speeds as the basis of estimates: from a run directory, or from a number that the user gives.

The speed of another network or image size says little about a recipe. It is refused, or converted by
multiply-accumulates where the user insists, with the error that `benchmarks/plan_accuracy.py` found. Hours of one
device are estimated in the same way: time is assumed to be proportional to multiply-accumulates, which is right where
the network is the limit, and not data, memory or kernel launches. Evaluations, start-up and scaling losses are not
included.
"""

import math
from dataclasses import replace
from pathlib import Path

from vernier.config import Config, Machine, Model, Recipe, config_from_tree, train_px
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.what_ran import describe_old_run
from vernier.models import shown_name
from vernier.models.cost import cost_of
from vernier.records.environment import decode_environment
from vernier.records.events import StartEvent
from vernier.records.what_ran import WhatRan
from vernier.references import command, given, use
from vernier.store import RunDir
from vernier.templates import lines_of, open_templates

from .plan import Network, Workload

OPERATIONS_PER_MAC = 6
"""Floating-point operations of a training step per multiply-accumulate of the forward pass: two, three times."""
MOST_PETAFLOPS = 100.0
CONVERSION_SPAN = (0.41425, 2.41546)
"""Lowest and highest true speed over the converted one, among 176 conversions on devices with known speeds."""
CONVERSION_ERROR = "the true speed was 0.41 to 2.4 times the converted one in 176 conversions"


@frozen
class MeasuredRun:
    """A run with a measured training speed per device. `span`: its 95 % interval as shares of it; None: not known."""

    name: str
    config: Config
    ran: WhatRan
    images_per_s: float
    span: tuple[float, float] | None = None


@frozen
class Basis:
    """Where a speed is from, in words. `ran` is what ran there; None for a number that was given."""

    text: str
    ran: WhatRan | None = None
    converted_from: str | None = None


@frozen
class Speed:
    """Training images per second of one device, for images of this many multiply-accumulates (in 1e9)."""

    images_per_s: float
    gmac: float


def mean_gmac(recipe: Recipe) -> float:
    """Forward multiply-accumulates of a training image of a recipe, in 1e9, on average over its image sizes."""
    whole, channels = max(1, round(recipe.schedule.epochs)), len(recipe.data.mean)
    # The size of an image follows from the epoch where images grow.
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    return sum(cost_of(recipe.model, px=px, channels=channels).gmac for px in sizes) / whole


def device_hours(recipe: Recipe, train_images: int, speed: Speed) -> float:
    """Hours of one such device for the training steps of a recipe."""
    operations = recipe.schedule.epochs * train_images * mean_gmac(recipe)
    return operations / (speed.images_per_s * speed.gmac) / 3600


def read_measured_run(path: Path) -> MeasuredRun:
    """A run and its speed. Raises ConfigError if it is no run, has no speed, or is a smoke run."""
    run = RunDir.open(path)
    summary, config = run.status().summary, config_from_tree(run.read_config())
    if summary is None or summary.training is None:
        why = (
            "is a benchmark without one training speed: it measured inference, or several configurations. Measure one "
            "with vernier bench train"
            if run.is_bench
            else "has no measured training speed yet. Let the run finish"
        )
        raise ConfigError(f"{path} {why}, or give images per second.")
    ran = summary.ran
    # Older runs did not record it.
    if ran is None:
        start = next((e for e in reversed(run.history()) if isinstance(e, StartEvent)), None)
        ran = describe_old_run(config, start, decode_environment(run.read_environment()), whole_run=start is not None)
    # Its batch and its data are cut down, so that its speed is not that of the recipe.
    if ran.smoke:
        raise ConfigError(f"{path} is a smoke run, whose speed means nothing. Give a run that was trained in earnest.")
    speed = summary.training
    low, high = speed.images_per_s_total_95
    total = speed.images_per_s_total
    return MeasuredRun(
        name=run.path.name,
        config=config,
        ran=ran,
        images_per_s=speed.images_per_s_per_device,
        span=None if low is None or high is None else (low / total, high / total),
    )


def _given_speed(option: str, run_or_rate: str) -> tuple[float, MeasuredRun | None]:
    """Images per second of one device, and the run that has them if it is the path of one. Raises ConfigError."""
    try:
        rate, run = float(run_or_rate), None
    except ValueError:
        run = read_measured_run(Path(run_or_rate))
        rate = run.images_per_s
    if not 0 < rate < math.inf:
        raise ConfigError(f"{given(option, run_or_rate)}: images per second must be more than 0.")
    return rate, run


def _network_and_size(network: str, start_px: int | None, image_px: int) -> str:
    return f"{network} at {'' if start_px is None else f'{start_px} to '}{image_px} px"


def _work_of(recipe: Recipe) -> str:
    return _network_and_size(shown_name(recipe.model), recipe.augment.start_px, recipe.data.image_px)


def _measured_work(run: MeasuredRun) -> tuple[str, float]:
    """Network and image size of a run in words, and its multiply-accumulates of an image (in 1e9), on average."""
    ran = run.ran
    work = _network_and_size(ran.network, ran.start_px, ran.image_px)
    return work, ran.gmac if ran.start_px is None else mean_gmac(run.config.recipe)


def workload_of(
    config: Config, run_or_rate: str, batch: int, network: Network, *, convert: bool = False
) -> tuple[Workload, Basis]:
    """What one device does per step of a recipe, and where its speed is from.

    `run_or_rate` is a run directory or images per second; `batch` is the batch per device of the latter. The speed of
    another network or image size is converted if `convert`. Raises ConfigError for what cannot be used.
    """
    recipe = config.recipe
    parameters = cost_of(recipe.model, px=recipe.data.image_px, channels=len(recipe.data.mean)).params
    rate, run = _given_speed("bench", run_or_rate)
    # Typing the speed of a whole machine for that of one device is the usual mistake.
    petaflops = rate * mean_gmac(recipe) * OPERATIONS_PER_MAC / 1e6
    if petaflops > MOST_PETAFLOPS:
        raise ConfigError(
            f"{given('bench', f'{rate:.0f}')}: at that speed one device would do {petaflops:,.0f} PFLOP/s in "
            "this recipe, more than any device does. Give the images per second of one device."
        )
    exchange = _exchange(config.machine, 4 * parameters, _device_kind(run, network, config))
    if run is None:
        text = f"{rate:,.6g} img/s per device at batch {batch:,}, as given, taken to be the speed of this recipe"
        return replace(exchange, images_per_s=rate, measured_batch=batch), Basis(text=text)
    _check_hardware(run, config, network)
    share, basis = _speed_on_recipe(run, recipe, run_or_rate, convert)
    # The errors of the conversion and of the measurement are independent and multiply at worst.
    low, high = CONVERSION_SPAN if basis.converted_from else (1.0, 1.0)
    own_low, own_high = run.span or (1.0, 1.0)
    return replace(
        exchange,
        images_per_s=rate * share,
        measured_batch=run.ran.batch_per_device,
        speed_span=(own_low * low, own_high * high),
        precision=run.ran.precision,
    ), basis


def _device_kind(run: MeasuredRun | None, network: Network, config: Config) -> str | None:
    """The kind of device that is to train: that of the run, of the network or of the settings; None: not known."""
    if run is not None:
        return run.ran.device.split(" ")[0]
    return network.device or (None if config.machine.device == "auto" else config.machine.device)


def _exchange(machine: Machine, gradient_bytes: int, kind: str | None) -> Workload:
    """A workload with the exchange of gradients that a training with these settings would have; its speed is missing.

    On CPUs that is gloo's single ring. Devices that are not known are taken to be accelerators, whose libraries add up
    within hosts.
    """
    return Workload(
        images_per_s=1.0,
        measured_batch=1,
        gradient_bytes=gradient_bytes,
        bucket_bytes=(machine.bucket_mb or Workload.bucket_bytes >> 20) << 20,
        one_ring=kind == "cpu",
    )


def _check_hardware(run: MeasuredRun, config: Config, network: Network) -> None:
    """Refuse a speed of another kind of device or precision: no arithmetic converts these."""
    kind = run.ran.device.split(" ")[0]
    if network.device is not None and kind != network.device:
        raise ConfigError(
            f"{run.name} was measured on {run.ran.device}, and {given('network', network.name)} connects "
            f"{network.device} devices. Measure one of these, give its images per second, or another {use('network')}."
        )
    precision = config.machine.precision
    # fp32 is the default of recipes that name none: it is no statement about the run.
    if precision not in ("fp32", run.ran.precision):
        raise ConfigError(
            f"{run.name} was measured in {run.ran.precision}, and the recipe has "
            f"{given('machine.precision', precision)}. Measure it with "
            f"{command('bench train', config.recipe.name, precision=precision)}, or give images per second."
        )


def _speed_on_recipe(run: MeasuredRun, recipe: Recipe, path: str, convert: bool) -> tuple[float, Basis]:
    """The recipe's speed as a share of the run's, and its basis."""
    ran, (there, gmac_there) = run.ran, _measured_work(run)
    here = _work_of(recipe)
    processes = f", {ran.devices} processes exchanging gradients" if ran.devices > 1 else ""
    uncertain = "" if run.span else "; its own uncertainty is not known and not in the ranges"
    measured = f"{run.images_per_s:,.4g} img/s per device, measured in {run.name}{processes}{uncertain}"
    # Equal in words is equal in work: the words have network, options and sizes.
    if there == here:
        return 1.0, Basis(text=measured, ran=ran)
    if not convert:
        raise ConfigError(
            f"{path} measured {there}, and {recipe.name} trains {here}: that speed says little about this recipe. "
            f"Measure it ({command('bench train', recipe.name)}), give its images per second, or add "
            f"{use('convert', True)} to convert by arithmetic: {CONVERSION_ERROR}."
        )
    text = f"converted from {there} by arithmetic ({measured}); {CONVERSION_ERROR}"
    return gmac_there / mean_gmac(recipe), Basis(text=text, ran=ran, converted_from=there)


def speed_of(run_or_rate: str, *, convert: bool = False) -> tuple[Speed, Basis]:
    """The speed of a device, to be converted to recipes of any network, and where it is from.

    A number is images per second of ResNet-50 at 224 pixels. Raises ConfigError for a run unless `convert`.
    """
    rate, run = _given_speed("device_hours", run_or_rate)
    if run is not None:
        there, gmac_there = _measured_work(run)
        if not convert:
            raise ConfigError(
                f"{run_or_rate} measured {there}; hours of other networks would be converted from that speed by "
                f"arithmetic: {CONVERSION_ERROR}. Add {use('convert', True)} to do so."
            )
        text = f"converted from {there} by arithmetic ({rate:,.4g} img/s per device in {run.name})"
        return Speed(images_per_s=rate, gmac=gmac_there), Basis(text=text, ran=run.ran, converted_from=there)
    reference, there = cost_of(Model(name="resnet50", num_classes=1000), px=224).gmac, "resnet50 at 224 px"
    text = f"converted from {rate:g} img/s of {there} by arithmetic"
    return Speed(images_per_s=rate, gmac=reference), Basis(text=text, converted_from=there)


def hours_and_range(recipe: Recipe, train_images: int, speed: Speed, basis: Basis) -> tuple[float, tuple[float, float]]:
    """Hours of one device for a recipe, and their range: that of conversions, unless its own work was measured."""
    hours = device_hours(recipe, train_images, speed)
    # A speed of the very work of this recipe is not converted.
    low, high = (1.0, 1.0) if _work_of(recipe) == basis.converted_from else CONVERSION_SPAN
    return hours, (hours / high, hours / low)


def summary_lines(config: Config, basis: Basis, network: Network, work: Workload) -> tuple[str, ...]:
    """What the plan is for and based on: `templates/summary.txt`."""
    values = {"recipe": config.recipe, "machine": config.machine, "basis": basis, "network": network, "work": work}
    return tuple(lines_of(open_templates(__file__, shown_name=shown_name), "summary.txt", values))
