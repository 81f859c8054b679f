"""Fills in what ran from the configuration, the data and the device: the only place where that record is made."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vernier.clock import utc_stamp
from vernier.config import Config, Machine, config_from_tree, train_px
from vernier.errors import ConfigError
from vernier.models import is_outside, shown_name
from vernier.models.cost import cost_of
from vernier.records.environment import DeviceInfo, Environment
from vernier.records.events import Loading, StartEvent
from vernier.records.what_ran import Kind, WhatRan
from vernier.version import describe_version
from vernier.wording import plural

from .environment import installed_version


def describe_run(
    config: Config,
    kind: Kind,
    *,
    image_px: int,
    classes: int,
    channels: int,
    batch_per_device: int,
    devices: int,
    feeding: str,
    device_kind: str,
    device: DeviceInfo | None,
    threads: int,
    whole_run: bool = False,
) -> WhatRan:
    """What runs with this configuration, on images of `image_px`; `classes` are the data's, 0 where nobody knows.

    `whole_run`: a training with all its image sizes and evaluations, not a measurement of some of its steps.
    """
    recipe, machine = config.recipe, config.machine
    cost = cost_of(recipe.model, px=image_px, classes=classes, channels=channels)
    return WhatRan(
        kind=kind,
        recipe=recipe.name,
        network=shown_name(recipe.model),
        parameters=cost.params,
        gmac=cost.gmac,
        image_px=image_px,
        start_px=recipe.augment.start_px if whole_run else None,
        eval_px=recipe.data.eval_px if whole_run and recipe.data.eval_px != image_px else None,
        classes=classes,
        batch_per_device=batch_per_device,
        devices=devices,
        gradients=_describe_exchange(machine) if devices > 1 and kind == "train" else None,
        data=recipe.data.source,
        feeding=feeding,
        precision="int8" if machine.int8 else machine.precision,
        mode=machine.mode,
        convolution=machine.convolution if kind == "train" and machine.convolution not in ("auto", "torch") else None,
        device=f"{device_kind} ({device.name})" if device is not None else device_kind,
        threads=threads,
        torch=installed_version("torch") or "",
        vernier=describe_version(),
        date=utc_stamp()[:10],
        smoke=config.limits.smoke,
    )


def describe_old_run(
    config: Config,
    start: StartEvent | None = None,
    environment: Environment | None = None,
    *,
    kind: Kind = "train",
    batch_per_device: int | None = None,
    devices: int | None = None,
    whole_run: bool = True,
) -> WhatRan:
    """What ran in a run that did not record it, as far as its configuration, start event and environment tell.

    `whole_run` is False for a measurement, which took the images of the first epoch, or of the evaluation.
    """
    recipe, machine = config.recipe, config.machine
    event, surroundings = start or StartEvent(), environment or Environment()
    classes = event.classes or recipe.model.num_classes or 0
    # Progressive resizing begins with smaller images, which is what a measurement of the first steps had.
    first_px = recipe.data.eval_px if kind == "infer" else train_px(recipe.data, recipe.augment, 0)
    versions = surroundings.versions
    ran = describe_run(
        config,
        kind,
        image_px=recipe.data.image_px if whole_run else first_px,
        classes=classes,
        channels=len(recipe.data.mean),
        batch_per_device=batch_per_device or max(1, recipe.global_batch // machine.procs),
        devices=devices or event.world,
        feeding=describe_feeding(recipe.data.source, event.loading, event.workers or machine.workers),
        device_kind=event.device or surroundings.device_kind or machine.device,
        device=surroundings.devices[0] if surroundings.devices else None,
        threads=event.threads if start else surroundings.compute_threads,
        whole_run=whole_run,
    )
    version, commit = versions.get("vernier") or "", surroundings.git_commit
    if version and commit and "(" not in version:  # development versions were recorded as 0.2.0, too
        version = f"{version} ({commit[:7]})"
    return replace(
        ran,
        torch=versions.get("torch") or "",
        vernier=version,
        date=(event.time or "")[:10],
    )


def what_an_old_run_ran(
    settings: Mapping[str, Any], start: StartEvent | None, environment: Environment | None, **more: Any
) -> WhatRan | None:
    """What ran, from the configuration of a run that did not record it; None where that cannot be read any more."""
    try:
        config = config_from_tree(settings)
        # To count an outside model, it is built: a report must not run the code of a run.
        return None if is_outside(config.recipe.model.name) else describe_old_run(config, start, environment, **more)
    except ConfigError:
        return None


def _describe_exchange(machine: Machine) -> str | None:
    """How gradients are exchanged, where that is not the default."""
    return None if machine.bucket_mb in (None, 25) else f"buckets of {machine.bucket_mb:,} MiB"


def describe_feeding(source: str, loading: Loading | None, workers: int | None) -> str:
    """How images reach the network, in words; without a number of `workers` it is chosen when they are read."""
    threads = "loader threads" if workers is None else plural(workers, "loader thread")
    threads = threads if workers != 0 else "loading in the main process"
    if source in ("synthetic", "static"):
        pixels = "random pixels" if source == "synthetic" else "the same random pixels in every batch"
        return f"{pixels} copied from memory" + ("" if workers == 0 else f" by {threads}")
    cached = ", decoded images cached in memory" if loading is not None and loading.cache == "memory" else ""
    backend = "" if loading is None or loading.backend == "native" else f" ({loading.backend})"
    return f"{threads}{backend}{cached}"
