"""Which arms a benchmark has: every combination of its lists, here and on the other side of a comparison.

The other side is another version of Vernier (`versions`) or an earlier benchmark, which names its version itself.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Literal

from vernier.config import Config, config_from_tree, override, to_dict, tree_differences
from vernier.errors import ConfigError
from vernier.records.bench import ArmLabels, ArmRequest, BenchRequest, Layout
from vernier.references import command, given, use
from vernier.store import RunDir

from .arms import Arm, memory_limit
from .versions import Version, checked_out, describe_this_version, fit_config

INT8 = "int8"
"""The precision of arms that run in INT8: no setting of PyTorch, but one of other engines."""
HERE = "here"
"""The label of this version's side."""


CPU_BATCH, ACCELERATOR_BATCH = 32, 256
"""Largest batch per device that is measured unless one is given: a recipe's batch is that of all its devices."""


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


def arms_of(request: BenchRequest, side: str | None = None, source: Path | None = None) -> list[Arm]:
    """An arm per combination, named by the labels in which the arms differ."""
    config = config_from_tree(request.config)
    machine, infer = config.machine, request.what == "infer"
    batch_per_device = machine.eval_batch if infer else max(1, config.recipe.global_batch // machine.procs)
    layouts = request.layouts or (Layout(procs=machine.procs),)
    precisions, modes = request.precisions or (machine.precision,), request.modes or (machine.mode,)
    scenarios = (request.scenarios or ("offline",)) if infer else (None,)
    engines = (request.engines or (None,)) if infer else (None,)
    labels = [
        ArmLabels(
            batch=batch,
            precision=precision,
            mode=mode,
            engine=engine,
            scenario=scenario,
            procs=layout.procs,
            threads=layout.threads,
            exchange="none" if layout.apart else None,
            load=load,
            side=side,
        )
        for batch, precision, mode, engine, layout, scenario in product(
            request.batches or (batch_per_device,), precisions, modes, engines, layouts, scenarios
        )
        if (engine, precision) != ("torch", INT8)  # PyTorch has none, and is measured beside those that have
        for load in (request.loads if scenario == "server" and request.rate_per_s is None else (None,))
    ]
    return [
        Arm(name=name, labels=own, request=_arm_request(request, config, own), source=source)
        for name, own in zip(_names(labels), labels, strict=True)
    ]


def _names(arms: Sequence[ArmLabels]) -> list[str]:
    """A name per arm from the labels in which they differ; batch and side are always part of it."""
    labels = [f.name for f in fields(ArmLabels)]
    varying = [k for k in labels if k in ("batch", "side") or len({getattr(a, k) for a in arms}) > 1]
    return [" ".join(f"{k}={getattr(a, k)}" for k in varying if getattr(a, k) is not None) for a in arms]


def _arm_request(request: BenchRequest, config: Config, labels: ArmLabels) -> ArmRequest:
    settings: dict[str, str | int | bool | None] = {
        "machine.precision": "fp32" if labels.precision == INT8 else labels.precision,
        "machine.mode": labels.mode,
        "machine.procs": labels.procs,
    }
    if labels.threads is not None:
        settings["machine.threads"] = labels.threads
    if request.what == "infer":
        settings["machine.eval_batch"] = labels.batch
        settings["machine.int8"] = labels.precision == INT8
        settings["machine.engine"] = labels.engine or config.machine.engine
    elif request.scaling != "strong":
        total = labels.batch * labels.procs
        settings |= {"global_batch": total, "machine.accumulation": 1, "machine.process_batch": None}
    for name, value in settings.items():
        config = override(config, name, value)
    config, _ = at_final_size(config)
    return ArmRequest(
        what=request.what,
        config=to_dict(config),
        plan=request.plan,
        run=request.weights_of,
        seed=request.seed,
        apart=labels.exchange is not None,
        scenario=labels.scenario,
        load_share=labels.load,
        rate_per_s=request.rate_per_s,
        memory_limit_bytes=request.memory_limit_bytes or memory_limit(config.machine.device),
    )


# ---------------------------------------------------------------------------------------------------------- both sides


@dataclass(frozen=True)
class Sides:
    """All arms of a benchmark, and notes on the versions they run and the settings in which they differ."""

    arms: list[Arm]
    notes: list[str]


@contextlib.contextmanager
def both_sides(request: BenchRequest) -> Iterator[Sides]:
    """The arms here and, of a comparison, those of the other side, whose code is checked out while entered."""
    if request.against is None:
        yield Sides(arms_of(request), [])
        return
    path = Path(request.against)
    is_run = bool(request.against) and path.is_dir()
    other_request, reference = _earlier_request(request, path) if is_run else (request, request.against)
    side = path.resolve().name if is_run else request.against
    with checked_out(reference) as other:
        other_arms, unknown = _fit_arms(arms_of(other_request, side, other.source), other, side)
        notes = [describe_this_version(), f"{side}: commit {other.commit[:12]}"]
        if unknown:
            notes.append(f"{side} has no such setting, and here it is at its default: {', '.join(unknown)}")
        yield Sides(arms_of(request, HERE) + other_arms, [*notes, *_differences(request, other_request)])


def _fit_arms(arms: list[Arm], other: Version, side: str) -> tuple[list[Arm], list[str]]:
    """The arms with the settings that another version has, and the names of those it does not have."""
    fitted, unknown = [], dict[str, None]()
    for arm in arms:
        config, left_out = fit_config(arm.request.config, other.settings, side)
        unknown |= dict.fromkeys(left_out)
        fitted.append(replace(arm, request=replace(arm.request, config=config)))
    return fitted, list(unknown)


def _differences(request: BenchRequest, other: BenchRequest) -> list[str]:
    """In which settings the two sides differ, besides their code."""
    pairs = tree_differences(to_dict(config_from_tree(request.config)), to_dict(config_from_tree(other.config)))
    if request.weights_of != other.weights_of:
        pairs["run"] = (request.weights_of, other.weights_of)
    return [f"the sides differ in {name}: {here!r} here, {there!r} there" for name, (here, there) in pairs.items()]


def _earlier_request(request: BenchRequest, path: Path) -> tuple[BenchRequest, str]:
    """What an earlier benchmark measured, and the commit it ran. Raises ConfigError where that cannot be run again."""
    run = RunDir.open(path)
    earlier = run.read_bench().asked
    if earlier is None:
        raise ConfigError(f"{given('against', path)}: its bench.json does not say what was measured.")
    if earlier.what != request.what:
        raise ConfigError(
            f"{given('against', path)} is a benchmark of {earlier.what}, this one is of {request.what}: use "
            f"{command(f'bench {earlier.what}')}."
        )
    commit = run.read_environment().get("git_commit") or ""
    if not commit or commit.endswith("-dirty"):
        raise ConfigError(
            f"{given('against', path)}: that benchmark ran "
            f"{'a changed working copy' if commit else 'an unknown version'} ({commit or 'no commit recorded'}), which "
            "cannot be run again. Give a git reference instead, or compare the two results: "
            f"{command('compare', path, 'RUN')}."
        )
    config_from_tree(earlier.config)
    layouts = earlier.layouts or tuple(Layout(procs=procs) for procs in earlier.procs or ())
    same = {
        name: getattr(request, name)
        for name in ("plan", "repeats", "seed", "scaling", "against", "tolerance", "memory_limit_bytes")
    }
    return replace(earlier, layouts=layouts, procs=None, **same), commit


def pair_sides(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Every arm of this side with the other side's arm of the same labels; where there is none, in order."""
    own = [a for a in arms if a.labels.side == HERE]
    others = [a for a in arms if a.labels.side != HERE]

    def partner(arm: Arm, number: int) -> Arm:
        same = (b for b in others if replace(b.labels, side=HERE) == arm.labels)
        return next(same, others[min(number, len(others) - 1)])

    return [(arm, partner(arm, number)) for number, arm in enumerate(own)]
