"""The device and the network of a configuration: what training, inference and measuring have in common.

Data, optimiser and loaders of a training are built in `training.setup`; weights are loaded by `starting_weights`.
"""

import os

import torch
from torch import nn

from vernier.config import DEFAULT_EXACT_THREADS, Config, Recipe, check_reduction
from vernier.cores import allowed_cores
from vernier.data.sources import Source
from vernier.devices import Device, kinds, resolve
from vernier.errors import ConfigError
from vernier.models import build, entry_of
from vernier.references import given, use
from vernier.tasks.base import Task
from vernier.wording import plural

from .processes.affinity import bind_cores
from .processes.launch import topology


def prepare_device(config: Config, *, exact: bool = False) -> tuple[Device, int]:
    """Set up this process's device; the device and its compute threads. Raises ConfigError for what it cannot do.

    `exact`: results must not depend on the number of processes, hence not on how many cores are left for one.
    """
    if exact:
        check_reduction(config)
    machine, where = config.machine, topology()
    device = resolve(machine.device)
    if why_not := device.refuse(machine.precision, machine.mode, allow_slow=machine.allow_slow):
        raise ConfigError(why_not)
    deterministic = machine.deterministic or exact
    if deterministic and (answer := device.deterministic()).verdict != "yes":
        setting = given("machine.reduction", "exact") if exact else given("machine.deterministic", True)
        raise ConfigError(f"{setting}: {answer.why}: use {answer.instead}.")
    if exact and device.backend is None:
        raise ConfigError(
            f"{given('machine.reduction', 'exact')}: {device.name} has no collectives, and sums in host memory are not "
            f"made in the tree's order. Use {use('machine.reduction', 'ddp')}, or {use('machine.device', 'cpu')}."
        )
    several = where.local_world > 1 or machine.max_cpus
    cores = bind_cores(where, machine.max_cpus, device.numa_node) if several else allowed_cores()
    # Beside an accelerator, PyTorch's threads have little to compute, and the loader's need the cores.
    most = len(cores) if device.name == "cpu" else max(1, len(cores) // 4)
    threads = machine.threads or (DEFAULT_EXACT_THREADS if exact else most)
    torch.set_num_threads(threads)
    device.allocator = machine.allocator
    device.prepare(machine.precision, deterministic=deterministic, local_rank=where.local_rank)
    return device, threads


_EXACT_THREADS_NOTE = (
    f"{given('machine.reduction', 'exact')}: {DEFAULT_EXACT_THREADS} thread per process, however many cores there "
    f"are, because sums depend on it. More: {use('machine.threads', slot='N')}, the same N for every number of "
    "processes"
)


def threads_notes(config: Config, threads: int) -> tuple[str, ...]:
    """A note where OMP_NUM_THREADS or free cores ask for another number of threads than is used.

    torchrun sets the variable to 1 unasked.
    """
    if config.machine.reduction == "exact":
        idle = config.machine.threads is None and len(allowed_cores()) > threads
        return (_EXACT_THREADS_NOTE,) if idle else ()
    requested = os.environ.get("OMP_NUM_THREADS", "")
    by_launcher = topology().launcher == "torchrun" and requested == "1"
    if requested in ("", str(threads)) or config.machine.threads is not None or by_launcher:
        return ()
    setting = use("machine.threads", int(requested) if requested.isdecimal() else requested)
    return (f"OMP_NUM_THREADS={requested} is not used: {threads} threads, by the cores. To set them: {setting}",)


def local_torch_device(device: Device) -> torch.device:
    """The device of this process's tensors."""
    return device.torch_device(topology().local_rank)


def build_model_for_data(config: Config, task: Task, source: Source, torch_device: torch.device) -> nn.Module:
    """The recipe's network with the data's classes and channels."""
    recipe, classes = config.recipe, len(source.classes)
    num_classes = recipe.model.num_classes
    if num_classes is not None and num_classes != classes:
        names = ", ".join(source.classes[:3]) + (", ..." if classes > 3 else "")
        raise ConfigError(
            f"model.num_classes = {num_classes}, but the data has {classes} classes ({names}). "
            "Leave model.num_classes out to take it from the data."
        )
    if len(recipe.data.mean) != source.channels or len(recipe.data.std) != source.channels:
        raise ConfigError(
            f"data.mean and data.std have {len(recipe.data.mean)} and {plural(len(recipe.data.std), 'value')}. "
            "Give one per channel in both: 3 for a network that takes colour, 1 for one that takes grey images."
        )
    return build_model(config, task.outputs(classes), source.channels, torch_device)


def build_model(config: Config, outputs: int, channels: int, torch_device: torch.device) -> nn.Module:
    """The recipe's network from the recipe's seed, in the machine's memory layout where the device runs in it."""
    torch.manual_seed(config.recipe.seed)
    model = build_network(config.recipe, outputs, channels)
    channels_last = config.machine.channels_last and kinds()[torch_device.type].channels_last
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return model.to(device=torch_device, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def build_network(recipe: Recipe, outputs: int, channels: int) -> nn.Module:
    """The recipe's network; its initial weights are from torch's own generator."""
    spec = recipe.model
    return build(
        spec.name,
        num_classes=outputs,
        in_channels=channels,
        init=spec.init,
        zero_gamma=spec.zero_gamma,
        stem=spec.stem,
        width=spec.width,
        drop_path=spec.drop_path,
        blurpool=spec.blurpool,
        padding=spec.padding,
        box_sizes=spec.box_sizes,
        image_px=recipe.data.image_px if "image_px" in entry_of(spec.name)[1].options else None,
    )
