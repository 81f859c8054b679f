"""The peak memory of a training, predicted before it starts, and what to do where it does not fit. Imports no torch.

The tensors of a step are counted by `models.cost`; here are the optimiser's, the loader's and the evaluation's, and
on a CPU what the process needs besides tensors. Measured peaks beside predicted ones: docs/results/memory.md.
"""

from dataclasses import replace

from vernier.config import Config, Derived, Machine
from vernier.errors import TooLittleMemory
from vernier.frozen import frozen
from vernier.models.catalogue import info
from vernier.models.cost import cost_of, inference_bytes, training_bytes
from vernier.own_code import is_own
from vernier.quantities import rough_memory
from vernier.records.run import MemoryPrediction
from vernier.references import use
from vernier.wording import plural

_WEIGHT_BYTES, _HALF_BYTES, _PIXEL_BYTES = 4, 2, 1
PROCESS_BYTES = 345 * 2**20
"""Python, PyTorch, its kernels and threads in a process on a CPU, without any tensor."""
HEAP_SHARE = 0.43
"""On a CPU freed memory stays with the process, in pieces that do not fit the next tensor: so much of what a step
holds at its peak is added."""
RETURNED_HEAP_SHARE = 0.1
"""The same with activation checkpointing, where freed memory is returned at once."""
WINOGRAD_HEAP_SHARE = 0.6
"""The same with machine.convolution = winograd, whose points of tiles come and go beside the tensors."""
CERTAIN, LIKELY = 0.85, 1.15
"""A prediction is within 15 % of what was measured: with less than the first share of it a process surely fails, with
less than the second one it may."""
# The one that is being filled, and the one that the step reads; prefetched ones are added.
_LOADER_BATCHES = 2


@frozen
class FreeMemory:
    """Bytes that `processes` can still take together, and where."""

    bytes: int
    where: str = "on this host"
    processes: int = 1


@frozen
class KnownData:
    """What is known of a training's data and device. `cached_bytes`: decoded images that stay in memory.

    `classes`: 0 where not known, for the catalogue's. `val_images`: evaluated at most so many at a time; None: a full
    batch.
    """

    on_cpu: bool
    classes: int = 0
    cached_bytes: int = 0
    val_images: int | None = None


def predict_memory(config: Config, derived: Derived, known: KnownData) -> MemoryPrediction:
    """The peak of one process; on a device with memory of its own, that of the device."""
    recipe, machine, on_cpu = config.recipe, config.machine, known.on_cpu
    cost = cost_of(recipe.model, px=recipe.data.image_px, classes=known.classes, channels=len(recipe.data.mean))
    # Gradients are counted with the step: they exist while it runs, not in evaluation.
    # Of a user's optimizer nobody knows; two buffers, as Adam's, are usual.
    buffers = 2 if is_own(recipe.optim.name) else len(recipe.optim.buffers)
    copies = 1 + buffers + (1 if recipe.ema.decay else 0)
    if derived.virtual_shards is not None:  # sums of gradients: to send, received, and those that wait for others
        copies += 2 + derived.accumulation.bit_length()
    elif derived.world > 1 or derived.accumulation > 1:
        copies += 1  # gradients stay while the next micro-batch is computed
    state_bytes = copies * _WEIGHT_BYTES * cost.params
    value_bytes = _HALF_BYTES if machine.precision in ("bf16", "fp16") else _WEIGHT_BYTES
    step_bytes = training_bytes(
        cost,
        batch=derived.process_batch,
        value_bytes=value_bytes,
        recompute=machine.activation_checkpointing,
        frozen_parts=info(recipe.model.name).layout.frozen_parts(recipe.model.freeze),
    )
    eval_batch = _eval_batch(config, known.val_images)
    eval_bytes = _evaluation_bytes(config, eval_batch, value_bytes)
    data_bytes = _loader_bytes(config, derived.process_batch, eval_batch) + known.cached_bytes if on_cpu else 0
    tensors_bytes = max(step_bytes, eval_bytes)
    heap_bytes = int(_heap_share(machine, trains=step_bytes >= eval_bytes) * tensors_bytes) if on_cpu else 0
    process_bytes = PROCESS_BYTES if on_cpu else 0
    return MemoryPrediction(
        peak_bytes=state_bytes + tensors_bytes + heap_bytes + data_bytes + process_bytes,
        weights_bytes=state_bytes,
        activations_bytes=tensors_bytes,
        data_bytes=data_bytes,
        process_bytes=process_bytes + heap_bytes,
        in_evaluation=eval_bytes > step_bytes,
        counted_on=cost.counted_on,
    )


def _heap_share(machine: Machine, *, trains: bool) -> float:
    """What freed memory adds to the peak, which is reached while the model `trains`, or in evaluation."""
    if machine.activation_checkpointing:
        return RETURNED_HEAP_SHARE
    return WINOGRAD_HEAP_SHARE if machine.convolution == "winograd" and trains else HEAP_SHARE


def _eval_batch(config: Config, val_images: int | None) -> int:
    if not config.recipe.eval.every_epochs and not config.recipe.eval.at_epochs:
        return 0
    batch = config.machine.eval_batch
    return batch if val_images is None else min(batch, val_images)


def _evaluation_bytes(config: Config, batch: int, value_bytes: int) -> int:
    data = config.recipe.data
    if not batch:
        return 0
    evaluated = cost_of(config.recipe.model, px=data.eval_px, channels=len(data.mean))
    return inference_bytes(evaluated, batch=batch, value_bytes=value_bytes)


def _loader_bytes(config: Config, batch: int, eval_batch: int) -> int:
    """Decoded batches of both loaders."""
    data, machine = config.recipe.data, config.machine
    batches = _LOADER_BATCHES + (0 if machine.workers == 0 else machine.prefetch)
    pixels = batch * data.image_px**2 + eval_batch * data.eval_px**2
    return batches * pixels * len(data.mean) * _PIXEL_BYTES


# --------------------------------------------------------------------------------------------------------- does it fit


def check_memory(config: Config, derived: Derived, free: FreeMemory, held_bytes: int, known: KnownData) -> str:
    """A warning where the training may not fit into free memory, or nothing. Raises TooLittleMemory where it cannot.

    `held_bytes` are those that each process has already. Cached images, a share of free memory, refuse nothing.
    """
    room, least = free.bytes // free.processes + held_bytes, replace(known, cached_bytes=0)
    prediction = predict_memory(config, derived, least)
    # The cache gives way to training, so it refuses nothing; the warning below counts it.
    if CERTAIN * prediction.peak_bytes > room and config.machine.check_memory:
        raise TooLittleMemory(
            f"{_need(prediction, free, room)}: {_smaller(config, derived, room, least)}. "
            f"To try it anyway: {use('machine.check_memory', False)}."
        )
    prediction = predict_memory(config, derived, known)
    if LIKELY * prediction.peak_bytes <= room:
        return ""
    return f"{_need(prediction, free, room)}. If memory runs out: {_smaller(config, derived, room, known)}."


def _need(prediction: MemoryPrediction, free: FreeMemory, room: int) -> str:
    step = "An evaluation" if prediction.in_evaluation else "A training step"
    shared = f", shared by {free.processes} processes" if free.processes > 1 else ""
    return (
        f"{step} needs about {rough_memory(prediction.peak_bytes)} of memory per process, and {rough_memory(room)} are "
        f"free for it {free.where}{shared}"
    )


def _smaller(config: Config, derived: Derived, room: int, known: KnownData) -> str:
    """What would fit, and where to set it."""

    def peak(changed: Config, batch: int) -> int:
        return predict_memory(changed, replace(derived, process_batch=batch), known).peak_bytes

    def largest(changed: Config) -> int:
        """The largest batch per process that fits; 0: none."""
        # Memory grows with the batch, so that halving finds the largest one in a few predictions.
        low, high = 0, derived.process_batch
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if peak(changed, middle) <= room else (low, middle - 1)
        return low

    if predict_memory(config, derived, known).in_evaluation:
        return f"evaluate fewer images at a time, {use('machine.eval_batch', max(1, config.machine.eval_batch // 4))}"
    advice, fitting = [], largest(config)
    if fitting:
        advice.append(
            f"the largest batch per process that fits is {plural(fitting, 'image')}{_division(derived, fitting)}"
        )
    else:
        advice.append("not even one image per process fits")
    if not config.machine.activation_checkpointing and config.machine.mode != "trace":
        leaner = replace(config, machine=replace(config.machine, activation_checkpointing=True))
        needed = peak(leaner, derived.process_batch)
        fits = "which fits" if needed <= room else f"and then at most {plural(largest(leaner), 'image')}"
        advice.append(f"{use('machine.activation_checkpointing', True)} needs about {rough_memory(needed)}, {fits}")
    return "; ".join(advice)


def _division(derived: Derived, fitting: int) -> str:
    """How to train the same global batch in parts of at most so many images."""
    images = derived.process_batch * derived.accumulation
    # The largest divisor: the global batch, and with it the result, must stay the same.
    part = next((n for n in range(fitting, 0, -1) if images % n == 0), 0)
    if derived.virtual_shards is not None:
        shards = derived.virtual_shards * -(-derived.process_batch // max(1, part))
        return f" ({use('virtual_shards', shards)} divides the same global batch further)"
    steps = images // part
    return f" ({use('machine.process_batch', part)} trains the same global batch in {steps} accumulation steps)"
