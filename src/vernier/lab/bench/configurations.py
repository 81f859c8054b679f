"""Which configurations a benchmark has: every combination of its lists."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from typing import Literal

from vernier.config import Config, config_from_tree, override, to_dict
from vernier.frozen import frozen
from vernier.lab.launcher import memory_limit
from vernier.lab.records.bench import BenchRequest, ConfigurationLabels, Layout, MeasureRequest
from vernier.references import use

INT8 = "int8"
"""The precision of configurations that run in INT8: no setting of PyTorch, but one of other engines."""
CPU_BATCH, ACCELERATOR_BATCH = 32, 256
"""Largest batch per device that is measured unless one is given: a recipe's batch is that of all its devices."""


@frozen
class Configuration:
    """One load to measure. `labels` tell it from the others, `request` goes to its process."""

    name: str
    labels: ConfigurationLabels
    request: MeasureRequest


def default_batch(
    config: Config, what: Literal["train", "infer"], device_kind: str, devices: int = 1
) -> tuple[int, str]:
    """The batch of so many devices where none is given, and a note about it."""
    own = config.recipe.global_batch if what == "train" else config.machine.eval_batch
    limit, device = (CPU_BATCH, "a CPU") if device_kind == "cpu" else (ACCELERATOR_BATCH, "an accelerator")
    limit, device = limit * devices, device if devices == 1 else f"{devices} devices"
    if own <= limit:
        return own, f"batch {own}: {'the global batch of the recipe' if what == 'train' else 'machine.eval_batch'}"
    of_recipe = f"; the global batch of the recipe is {own:,}" if what == "train" else ""
    return limit, f"batch {limit}: the default on {device}{of_recipe}; {use('batch', slot='N')} sets another"


def at_final_size(config: Config) -> tuple[Config, list[str]]:
    """The recipe at one image size, its last one, with a note where its images grow during training."""
    first, last = config.recipe.augment.start_px, config.recipe.data.image_px
    if first is None:
        return config, []
    note = f"images grow from {first} to {last} px during training: measured at {last} px"
    without_phases = override(override(config, "augment.phase_px", ()), "augment.phase_epochs", ())
    return override(without_phases, "augment.start_px", None), [note]


def configurations_of(request: BenchRequest) -> list[Configuration]:
    """A configuration per combination, named by the labels in which the configurations differ."""
    config = config_from_tree(request.config)
    machine, infer = config.machine, request.what == "infer"
    # At least 1: a recipe for many devices may have fewer images than this machine has processes.
    batch_per_device = machine.eval_batch if infer else max(1, config.recipe.global_batch // machine.procs)
    layouts = request.layouts or (Layout(procs=machine.procs),)
    precisions, modes = request.precisions or (machine.precision,), request.modes or (machine.mode,)
    scenarios = (request.scenarios or ("offline",)) if infer else (None,)
    engines = (request.engines or (None,)) if infer else (None,)
    labels = [
        ConfigurationLabels(
            batch=batch,
            precision=precision,
            mode=mode,
            engine=engine,
            scenario=scenario,
            procs=layout.procs,
            threads=layout.threads,
            exchange="none" if layout.apart else None,
        )
        for batch, precision, mode, engine, layout, scenario in product(
            request.batches or (batch_per_device,), precisions, modes, engines, layouts, scenarios
        )
        if (engine, precision) != ("torch", INT8)  # PyTorch has none, and is measured beside those that have
    ]
    return [
        Configuration(name=name, labels=own, request=_request_of(request, config, own))
        for name, own in zip(_names(labels), labels, strict=True)
    ]


def _names(configurations: Sequence[ConfigurationLabels]) -> list[str]:
    """A name per configuration from the labels in which they differ; the batch is always part of it."""
    labels = [f.name for f in fields(ConfigurationLabels)]
    varying = [k for k in labels if k == "batch" or len({getattr(a, k) for a in configurations}) > 1]
    return [" ".join(f"{k}={getattr(a, k)}" for k in varying if getattr(a, k) is not None) for a in configurations]


def _request_of(request: BenchRequest, config: Config, labels: ConfigurationLabels) -> MeasureRequest:
    settings: dict[str, str | int | bool | None] = {
        "machine.precision": "fp32" if labels.precision == INT8 else labels.precision,
        "machine.mode": labels.mode,
        "machine.procs": labels.procs,
    }
    # None leaves the default, an even share of the cores, which depends on the number of processes.
    if labels.threads is not None:
        settings["machine.threads"] = labels.threads
    if request.what == "infer":
        settings["machine.eval_batch"] = labels.batch
        settings["machine.int8"] = labels.precision == INT8
        settings["machine.engine"] = labels.engine or config.machine.engine
    elif request.scaling != "strong":
        total = labels.batch * labels.procs
        # The batch of a configuration replaces how the recipe divides its own.
        settings |= {"global_batch": total, "machine.accumulation": 1, "machine.process_batch": None}
    for name, value in settings.items():
        config = override(config, name, value)
    config, _ = at_final_size(config)
    return MeasureRequest(
        what=request.what,
        config=to_dict(config),
        plan=request.plan,
        run=request.weights_of,
        seed=request.seed,
        apart=labels.exchange is not None,
        scenario=labels.scenario,
        memory_limit_bytes=request.memory_limit_bytes or memory_limit(config.machine.device),
    )
