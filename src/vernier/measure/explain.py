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
from vernier.quantities import rough_duration, rough_memory
from vernier.records.codec import omitted
from vernier.records.run import MemoryPrediction
from vernier.records.what_ran import WhatRan
from vernier.store import find_runs
from vernier.wording import describe_batch

from .memory import KnownData, predict_memory
from .what_ran import describe_feeding, describe_run

# A backward pass costs two forward passes: gradients of the inputs, and of the weights.
TRAINING_FORWARDS = 3
USUAL_SHARE_OF_MATMUL = (0.3, 0.7)
"""Training of a residual network on a CPU reaches this share of the rate of matrix products (docs/benchmarks.md)."""
_SPARKS = "▁▂▃▄▅▆▇█"
_PROBE_S = 0.15
_MATMUL_SIDE = 768
_NEWEST_RUNS = 200
_LONG_S = 60 * 86_400
"""Nobody trains for two months on purpose."""


@frozen
class _ExpectedTime:
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
    expected: _ExpectedTime | None = omitted()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    resumes: Path | None = omitted()
    """The run that would be resumed, and the steps that it has."""
    done_steps: int | None = omitted()

    def lines(self) -> list[str]:
        """The explanation for a person."""
        d, rates = self.derived, self.rates
        batch = describe_batch(
            world=d.world, process_batch=d.process_batch, accumulation=d.accumulation, virtual_shards=d.virtual_shards
        )
        lines = [
            self.ran.line(),
            f"  data       {self.train_images:,} training images ({self.train_images_from})",
            f"  batch      {batch}",
            f"  steps      {d.steps_per_epoch:,} per epoch, {d.total_steps:,} in total"
            + (f", stopping at {d.stop_step:,}" if d.stop_step < d.total_steps else "")
            + (f", then on to {d.stop_step:,} at the last rate" if d.stop_step > d.total_steps else ""),
            f"  rate       {self.lr_rule} at its peak; first {rates[0]:.3g}, last {rates[-1]:.3g}",
            f"             {_sparkline(rates)}",
        ]
        if len(self.image_sizes) > 1:
            sizes = ", ".join(f"{px} from epoch {epoch}" for epoch, px in self.image_sizes)
            lines.append(f"  image px   {sizes}")
        free = self.memory_free_bytes
        available = "" if free is None else f"; {rough_memory(free)} are free here"
        if self.done_steps is not None:
            left = max(0, d.stop_step - self.done_steps)
            what = f"{left:,} steps are left" if left else "it is finished, and nothing is left to train"
            lines.append(f"  resumes    {self.resumes} at step {self.done_steps:,}: {what}")
        lines.append(f"  memory     {_describe_memory(self.memory)}{available}")
        lines.append(f"  time       {_time_line(self.expected)}")
        lines += [f"  note       {note}" for note in self.notes]
        return lines + [f"  warning    {warning}" for warning in self.warnings]


def explain(
    config: Config,
    *,
    images: int,
    images_from: str,
    classes: int,
    runs: Path,
    resumed: tuple[Path, int] | None,
    notes: Sequence[str],
    warnings: Sequence[str],
) -> Explanation:
    """Work out everything that follows from the configuration and the size of its data.

    `runs` is a folder that may hold a run of the same work, whose measured speed is then used.
    """
    recipe, ran = config.recipe, _what_would_run(config, classes)
    derived = derive(config, train_samples=images)
    on_cpu = likely_kind(config.machine.device) == "cpu"
    last = max(0, derived.total_steps - 1)
    memory = predict_memory(config, derived, KnownData(on_cpu=on_cpu, classes=classes))
    free = available_bytes() if on_cpu else None
    expected = _expected(ran, config, derived, runs)
    return Explanation(
        ran=ran,
        train_images=images,
        train_images_from=images_from,
        derived=derived,
        lr_rule=describe_lr(recipe),
        # As many bars as fit on a line of a terminal.
        rates=tuple(learning_rate(last * i // 59, recipe.schedule, derived) for i in range(60)),
        image_sizes=tuple(_image_sizes(config)),
        memory=memory,
        memory_free_bytes=free,
        expected=expected,
        notes=tuple(notes),
        warnings=(*warnings, *_absurdities(memory, free, expected)),
        resumes=None if resumed is None else resumed[0],
        done_steps=None if resumed is None else resumed[1],
    )


def _absurdities(memory: MemoryPrediction, free: int | None, expected: _ExpectedTime | None) -> Iterator[str]:
    """What makes a plan impossible here, or surely not what was meant."""
    if free is not None and memory.peak_bytes > free:
        yield f"this needs more memory than is free here ({rough_memory(free)}): training would be refused"
    if expected is not None and expected.low_s > _LONG_S:
        yield f"this takes at least {rough_duration(expected.low_s)} here: a smaller model or image, or an accelerator"


def _image_sizes(config: Config) -> Iterator[tuple[int, int]]:
    """(first epoch, size) for every size of a training."""
    recipe, before = config.recipe, 0
    for epoch in range(max(1, round(recipe.schedule.epochs))):
        px = train_px(recipe.data, recipe.augment, epoch)
        if px != before:
            yield epoch, px
            before = px


def _expected(ran: WhatRan, config: Config, derived: Derived, runs: Path) -> _ExpectedTime | None:
    """From the newest run of the same work; else, on a CPU, from the rate of matrix products, measured just now."""
    images = derived.stop_step * config.recipe.global_batch
    if (measured := _measured_rate(ran, runs)) is not None:
        name, rate = measured
        return _ExpectedTime(low_s=images / rate, high_s=images / rate, basis=f"{rate:,.0f} img/s as in {name}")
    if not ran.device.startswith("cpu"):
        return None
    flops = _matmul_flops(_PROBE_S)
    # A multiply-accumulate is two operations.
    per_image = 2 * TRAINING_FORWARDS * ran.gmac * 1e9
    low, high = USUAL_SHARE_OF_MATMUL
    return _ExpectedTime(
        low_s=images * per_image / (flops * high),
        high_s=images * per_image / (flops * low),
        basis=f"rough: {100 * low:.0f} to {100 * high:.0f} % of the {flops / 1e9:,.0f} GFLOP/s of matrix products here",
    )


def _measured_rate(ran: WhatRan, runs: Path) -> tuple[str, float] | None:
    # The newest: the machine and its software change. Limited, as a folder may hold thousands.
    for run in reversed(find_runs(runs)[-_NEWEST_RUNS:]):
        try:
            summary = run.status().summary
        except ConfigError:
            continue
        # A smoke run trains on a few tiny images, and its speed is nobody's.
        if summary is None or summary.ran is None or summary.training is None or summary.ran.smoke:
            continue
        if _same(summary.ran) == _same(ran):
            return run.path.name, summary.training.images_per_s_total
    return None


def _same(ran: WhatRan) -> tuple[object, ...]:
    """What must agree so that one run's speed is another's."""
    kind = ran.device.split(" ")[0]
    return ran.kind, ran.network, ran.image_px, ran.batch_per_device, ran.devices, ran.precision, ran.mode, kind


def _matmul_flops(seconds: float) -> float:
    """Floating-point operations per second of NumPy's matrix product on all cores, the best of a few."""
    a = np.ones((_MATMUL_SIDE, _MATMUL_SIDE), np.float32)
    best, began = 0.0, now_s()
    while now_s() - began < seconds or not best:
        start = now_s()
        a @ a
        # The best, not the mean: other programs only make it slower.
        best = max(best, 2 * _MATMUL_SIDE**3 / (now_s() - start))
    return best


def _sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars, the largest one full."""
    top = max(values) or 1.0
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * (len(_SPARKS) - 1) + 0.5))] for value in values)


def _time_line(expected: _ExpectedTime | None) -> str:
    if expected is None:
        return "not estimated: nothing was measured on such a device; vernier bench train measures it"
    low, high = rough_duration(expected.low_s), rough_duration(expected.high_s)
    span = f"about {low}" if low == high else f"{low} to {high}"
    return f"{span} for the training steps ({expected.basis})"


def _what_would_run(config: Config, classes: int) -> WhatRan:
    """What a training with this configuration runs, as far as that is known before its data and device are opened."""
    recipe, machine = config.recipe, config.machine
    kind = likely_kind(machine.device)
    # On a CPU two, if omitted; elsewhere the number is chosen when the images are there.
    workers = 2 if machine.workers is None and kind == "cpu" else machine.workers
    return describe_run(
        config,
        "train",
        image_px=recipe.data.image_px,
        classes=classes,
        channels=len(recipe.data.mean),
        batch_per_device=max(1, recipe.global_batch // machine.procs),
        devices=machine.procs,
        feeding=describe_feeding(recipe.data.source, None, workers),
        device_kind=kind,
        device=None,
        threads=machine.threads or max(1, len(allowed_cores()) // machine.procs),
        whole_run=True,
    )


def _describe_memory(prediction: MemoryPrediction) -> str:
    """The predicted peak and its parts in one line."""
    parts = [
        ("activations and gradients", prediction.activations_bytes),
        ("weights and optimiser", prediction.weights_bytes),
        ("data", prediction.data_bytes),
        ("process", prediction.process_bytes),
    ]
    named = ", ".join(f"{name} {rough_memory(size)}" for name, size in parts if size)
    when = " in evaluation" if prediction.in_evaluation else ""
    counted = {"meta": "; estimated on the meta device", "cpu": "; estimated from a pass on the CPU"}
    basis = counted.get(prediction.counted_on, "")
    return f"about {rough_memory(prediction.peak_bytes)} per process at the peak{when}: {named}{basis}"
