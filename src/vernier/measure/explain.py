"""What a training would do, worked out without starting it: `vernier train --explain`. Imports no torch.

The learning rate is computed by the function that training uses; memory and time are estimates and say so.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vernier.clock import now_s
from vernier.config import Config, Derived, derive, describe_lr, train_px
from vernier.cores import allowed_cores
from vernier.devices import likely_kind
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
from vernier.optim.schedules import learning_rate
from vernier.records.codec import omitted
from vernier.records.run import MemoryPrediction
from vernier.records.what_ran import WhatRan
from vernier.store import find_runs
from vernier.wording import describe_batch, two_digits

from .memory import KnownData, describe_memory, predict_memory
from .what_ran import describe_feeding, describe_run

TRAINING_FORWARDS = 3
USUAL_SHARE_OF_MATMUL = (0.3, 0.7)
"""Training of a residual network on a CPU reaches this share of the rate of matrix products (docs/benchmarks.md)."""
_SPARKS = "▁▂▃▄▅▆▇█"
_PROBE_S = 0.15
_MATMUL_SIDE = 768
_NEWEST_RUNS = 200


@frozen
class ExpectedTime:
    """Seconds of the training steps, from low to high, and what they are based on; evaluations are not included."""

    low_s: float
    high_s: float
    basis: str


@frozen
class Explanation:
    """A training that was not started. `rates` are the learning rates at evenly spaced steps."""

    ran: WhatRan
    train_images: int
    train_images_from: str
    derived: Derived
    lr_rule: str
    rates: tuple[float, ...]
    image_sizes: tuple[tuple[int, int], ...]
    memory: MemoryPrediction
    memory_free_bytes: int | None = omitted()
    """Of this host, where it is the CPU that would train."""
    expected: ExpectedTime | None = omitted()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def explain(
    config: Config,
    *,
    images: int,
    images_from: str,
    classes: int,
    runs: Path,
    notes: Sequence[str],
    warnings: Sequence[str],
) -> Explanation:
    """Work out everything that follows from the configuration and the size of its data.

    `runs` is a folder that may hold a run of the same work, whose measured speed is then used.
    """
    recipe, ran = config.recipe, what_would_run(config, classes)
    derived = derive(config, train_samples=images)
    on_cpu = likely_kind(config.machine.device) == "cpu"
    last = max(0, derived.total_steps - 1)
    return Explanation(
        ran=ran,
        train_images=images,
        train_images_from=images_from,
        derived=derived,
        lr_rule=describe_lr(recipe),
        rates=tuple(learning_rate(last * i // 59, recipe.schedule, derived) for i in range(60)),
        image_sizes=tuple(_image_sizes(config)),
        memory=predict_memory(config, derived, KnownData(on_cpu=on_cpu, classes=classes)),
        memory_free_bytes=available_bytes() if on_cpu else None,
        expected=_expected(ran, config, derived, runs),
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _image_sizes(config: Config) -> Iterator[tuple[int, int]]:
    """(first epoch, size) for every size of a training."""
    recipe, before = config.recipe, 0
    for epoch in range(max(1, round(recipe.schedule.epochs))):
        px = train_px(recipe.data, recipe.augment, epoch)
        if px != before:
            yield epoch, px
            before = px


def _expected(ran: WhatRan, config: Config, derived: Derived, runs: Path) -> ExpectedTime | None:
    """From the newest run of the same work; else, on a CPU, from the rate of matrix products, measured just now."""
    images = derived.stop_step * config.recipe.global_batch
    if (measured := _measured_rate(ran, runs)) is not None:
        name, rate = measured
        return ExpectedTime(low_s=images / rate, high_s=images / rate, basis=f"{rate:,.0f} img/s as in {name}")
    if not ran.device.startswith("cpu"):
        return None
    flops = matmul_flops(_PROBE_S)
    per_image = 2 * TRAINING_FORWARDS * ran.gmac * 1e9
    low, high = USUAL_SHARE_OF_MATMUL
    return ExpectedTime(
        low_s=images * per_image / (flops * high),
        high_s=images * per_image / (flops * low),
        basis=f"rough: {100 * low:.0f} to {100 * high:.0f} % of the {flops / 1e9:,.0f} GFLOP/s of matrix products here",
    )


def _measured_rate(ran: WhatRan, runs: Path) -> tuple[str, float] | None:
    for run in reversed(find_runs(runs)[-_NEWEST_RUNS:]):
        try:
            summary = run.status().summary
        except ConfigError:
            continue
        if summary is None or summary.ran is None or summary.training is None or summary.ran.smoke:
            continue
        if _same(summary.ran) == _same(ran):
            return run.path.name, summary.training.images_per_s_total
    return None


def _same(ran: WhatRan) -> tuple[object, ...]:
    """What must agree so that one run's speed is another's."""
    kind = ran.device.split(" ")[0]
    return ran.kind, ran.network, ran.image_px, ran.batch_per_device, ran.devices, ran.precision, ran.mode, kind


def matmul_flops(seconds: float) -> float:
    """Floating-point operations per second of NumPy's matrix product on all cores, the best of a few."""
    a = np.ones((_MATMUL_SIDE, _MATMUL_SIDE), np.float32)
    best, began = 0.0, now_s()
    while now_s() - began < seconds or not best:
        start = now_s()
        a @ a
        best = max(best, 2 * _MATMUL_SIDE**3 / (now_s() - start))
    return best


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars, the largest one full."""
    top = max(values) or 1.0
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * (len(_SPARKS) - 1) + 0.5))] for value in values)


def describe_explanation(explained: Explanation) -> list[str]:
    """The explanation for a person."""
    d, rates = explained.derived, explained.rates
    batch = describe_batch(
        world=d.world, process_batch=d.process_batch, accumulation=d.accumulation, virtual_shards=d.virtual_shards
    )
    lines = [
        explained.ran.line(),
        f"  data       {explained.train_images:,} training images ({explained.train_images_from})",
        f"  batch      {batch}",
        f"  steps      {d.steps_per_epoch:,} per epoch, {d.total_steps:,} in total"
        + (f", stopping at {d.stop_step:,}" if d.stop_step < d.total_steps else "")
        + (f", then on to {d.stop_step:,} at the last rate" if d.stop_step > d.total_steps else ""),
        f"  rate       {explained.lr_rule} at its peak; first {rates[0]:.3g}, last {rates[-1]:.3g}",
        f"             {sparkline(rates)}",
    ]
    if len(explained.image_sizes) > 1:
        sizes = ", ".join(f"{px} from epoch {epoch}" for epoch, px in explained.image_sizes)
        lines.append(f"  image px   {sizes}")
    free = explained.memory_free_bytes
    available = "" if free is None else f"; {two_digits(free / 2**30)} GiB are free here"
    lines.append(f"  memory     {describe_memory(explained.memory)}{available}")
    lines.append(f"  time       {_time_line(explained.expected)}")
    lines += [f"  note       {note}" for note in explained.notes]
    return lines + [f"  warning    {warning}" for warning in explained.warnings]


def _time_line(expected: ExpectedTime | None) -> str:
    if expected is None:
        return "not estimated: nothing was measured on such a device; vernier bench train measures it"
    low, high = _duration(expected.low_s), _duration(expected.high_s)
    span = f"about {low}" if low == high else f"{low} to {high}"
    return f"{span} for the training steps ({expected.basis})"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{two_digits(seconds / length)} {unit}"
    return f"{two_digits(seconds)} s"


def what_would_run(config: Config, classes: int) -> WhatRan:
    """What a training with this configuration runs, as far as that is known before its data and device are opened."""
    recipe, machine = config.recipe, config.machine
    kind = likely_kind(machine.device)
    return describe_run(
        config,
        "train",
        image_px=recipe.data.image_px,
        classes=classes,
        channels=len(recipe.data.mean),
        batch_per_device=max(1, recipe.global_batch // machine.procs),
        devices=machine.procs,
        feeding=describe_feeding(recipe.data.source, None, machine.workers),
        device_kind=kind,
        device=None,
        threads=machine.threads or max(1, len(allowed_cores()) // machine.procs),
        whole_run=True,
    )
