"""Measured training speeds as the basis of estimates: from a run directory, or from a number that the user gives.

The speed of another model or image size is refused: converted by multiply-accumulates it was 0.41 to 2.4 times the true
one on devices with known speeds.
"""

import math
from dataclasses import replace
from pathlib import Path

from vernier.config import Config, Machine, Recipe, config_from_tree, train_px
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
_TEMPLATES = open_templates(__file__, shown_name=shown_name)


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


def mean_gmac(recipe: Recipe) -> float:
    """Forward multiply-accumulates of a training image of a recipe, in 1e9, on average over its image sizes."""
    whole, channels = max(1, round(recipe.schedule.epochs)), len(recipe.data.mean)
    # The size of an image follows from the epoch where images grow.
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    return sum(cost_of(recipe.model, px=px, channels=channels).gmac for px in sizes) / whole


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


def _given_speed(run_or_rate: str) -> tuple[float, MeasuredRun | None]:
    """Images per second of one device, and the run that has them if it is the path of one. Raises ConfigError."""
    try:
        rate, run = float(run_or_rate), None
    except ValueError:
        run = read_measured_run(Path(run_or_rate))
        rate = run.images_per_s
    if not 0 < rate < math.inf:
        raise ConfigError(f"{given('bench', run_or_rate)}: images per second must be more than 0.")
    return rate, run


def _network_and_size(network: str, start_px: int | None, image_px: int) -> str:
    return f"{network} at {'' if start_px is None else f'{start_px} to '}{image_px} px"


def workload_of(config: Config, run_or_rate: str, batch: int, network: Network) -> tuple[Workload, Basis]:
    """What one device does per step of a recipe, and where its speed is from.

    `run_or_rate` is a run directory or images per second; `batch` is the batch per device of the latter. Raises
    ConfigError for what cannot be used, such as the speed of another model or image size.
    """
    recipe = config.recipe
    parameters = cost_of(recipe.model, px=recipe.data.image_px, channels=len(recipe.data.mean)).params
    rate, run = _given_speed(run_or_rate)
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
    return replace(
        exchange,
        images_per_s=rate,
        measured_batch=run.ran.batch_per_device,
        speed_span=run.span or (1.0, 1.0),
        precision=run.ran.precision,
    ), _basis_of(run, recipe, run_or_rate)


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


def _basis_of(run: MeasuredRun, recipe: Recipe, path: str) -> Basis:
    """What the run measured. Raises ConfigError if that was other work than the recipe's."""
    ran, here = run.ran, _network_and_size(shown_name(recipe.model), recipe.augment.start_px, recipe.data.image_px)
    there = _network_and_size(ran.network, ran.start_px, ran.image_px)
    # Equal in words is equal in work: the words have model, options and sizes.
    if there != here:
        raise ConfigError(
            f"{path} measured {there}, and {recipe.name} trains {here}: that speed says little about this recipe. "
            f"Measure it ({command('bench train', recipe.name)}), or give its images per second."
        )
    processes = f", {ran.devices} processes exchanging gradients" if ran.devices > 1 else ""
    uncertain = "" if run.span else "; its own uncertainty is not known and not in the ranges"
    text = f"{run.images_per_s:,.4g} img/s per device, measured in {run.name}{processes}{uncertain}"
    return Basis(text=text, ran=ran)


def summary_lines(config: Config, basis: Basis, network: Network, work: Workload) -> tuple[str, ...]:
    """What the plan is for and based on: `templates/summary.txt`."""
    values = {"recipe": config.recipe, "machine": config.machine, "basis": basis, "network": network, "work": work}
    return tuple(lines_of(_TEMPLATES, "summary.txt", values))
