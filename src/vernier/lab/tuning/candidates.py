"""Which settings are tried for a piece of work on this machine, in which order, and with which values.

Only settings of the machine: global batch, precision and everything that a recipe says stay as they are. The batch per
process changes the statistics of batch norm, so that processes and accumulation are tried only where the result is the
same by construction (machine.reduction = exact) or where it was allowed.
"""

from collections.abc import Iterable, Mapping, Sequence

from vernier.config import DEFAULT_EXACT_THREADS, Config, Machine, Work, count_virtual_shards
from vernier.frozen import frozen
from vernier.lab.records.bench import SettingValue
from vernier.references import use
from vernier.wording import plural

MOST_VALUES = 4
Changes = Mapping[str, SettingValue]
"""Settings of the machine, by name without `machine.`, and their values."""
_ON_CPU = {
    "threads": "the device computes",
    "allocator": "the device has memory of its own",
    "convolution": "the device has convolutions of its own",
}
_NO_PIXELS = f"random pixels need no loading: real images come with {use('data', slot='PATH')}"
_CHANGES_RESULTS = f"changes batch-norm statistics: {use('allow_split', True)} tries it"


@frozen
class Candidate:
    """A value of a setting as people read it, and the settings that it consists of."""

    shown: str
    changes: Changes


@frozen
class Setting:
    """A setting to try: the value in use and others; `left_out` says why there are none."""

    name: str
    now: str
    candidates: tuple[Candidate, ...] = ()
    left_out: str | None = None


@frozen
class Situation:
    """What decides which values make sense: the work, the device, its cores, the engines, and what a person fixed."""

    work: Work
    device: str
    cores: int
    real_data: bool
    engines: tuple[str, ...] = ()
    """Installed ones besides torch."""
    fixed: frozenset[str] = frozenset()
    """Settings of the machine that a person gave, without `machine.`."""
    allow_split: bool = False
    own_batch: bool = True
    """Whether the batch that is measured is that of the recipe."""


def order_of(situation: Situation) -> tuple[str, ...]:
    """The names of the settings in the order in which they are tried: what usually matters most comes first."""
    # Convolution and threads decide most on a CPU; later values are tried with the best of them.
    if situation.work == "train":
        # Not machine.backend: what auto takes is the fastest, with the same pixels.
        layout = ("workers", "allocator", "procs", "process_batch", "mode")
        compiling = () if situation.device == "cpu" else ("compile",)  # of use where launching kernels takes time
        return ("convolution", "threads", "channels_last", *layout, *compiling)
    return ("engine", "threads", "eval_batch", "channels_last", "workers", "allocator", "mode")


def setting_to_try(name: str, config: Config, situation: Situation) -> Setting:
    """The values of one setting, beside those that the configuration has by now."""
    machine = config.machine
    now = _shown(name, machine, situation)
    why_not = _reason_against(name, config, situation)
    candidates = () if why_not else tuple(c for c in _values(name, config, situation) if c.shown != now)[:MOST_VALUES]
    if not candidates:
        return Setting(name=name, now=now, left_out=why_not or "there is no other value here")
    return Setting(name=name, now=now, candidates=candidates)


def _shown(name: str, machine: Machine, situation: Situation) -> str:
    share = DEFAULT_EXACT_THREADS if machine.reduction == "exact" else max(1, situation.cores // machine.procs)
    threads = machine.threads or share
    if name == "threads":
        return str(threads)
    if name == "procs":
        return _layout(machine.procs, threads)
    if name == "process_batch":
        return "whole" if machine.process_batch is None else str(machine.process_batch)
    if name == "workers" and machine.workers is None:
        return "2" if situation.device == "cpu" else "by cores"
    return _text(getattr(machine, name))


def _reason_against(name: str, config: Config, situation: Situation) -> str:
    """Why a setting is not tried; empty where it is."""
    machine, exact = config.machine, config.machine.reduction == "exact"
    # A layout consists of both: threads that were given leave no choice of processes.
    if name in situation.fixed or (name == "procs" and "threads" in situation.fixed):
        return "given, so it stays"
    if situation.device != "cpu" and name in _ON_CPU:
        return f"no effect on {situation.device}: {_ON_CPU[name]}"
    if name == "workers" and not situation.real_data:
        return _NO_PIXELS
    if name == "engine" and (situation.device != "cpu" or machine.precision != "fp32" or machine.mode != "eager"):
        return "other engines run fp32 in eager mode on the CPU"
    if name == "engine" and not situation.engines:
        return "no other one is installed: pip install 'vernier[onnxruntime,openvino]'"
    if name in ("channels_last", "mode") and machine.engine != "torch":
        return f"only torch has it, and {machine.engine} runs the model"
    # With exact reduction the search must not change a single bit of the result.
    if exact and name in ("mode", "threads", "convolution"):
        return "machine.reduction = exact: results depend on it"
    # Its kernels read that layout only.
    if name == "channels_last" and machine.convolution == "winograd" and situation.work == "train":
        return "winograd needs it"
    if name == "convolution" and (machine.precision != "fp32" or not machine.channels_last):
        return "winograd is for fp32 and channels-last memory"
    if name == "procs" and situation.device != "cpu":
        return "one process per device: vernier bench scaling measures several"
    if name == "procs" and not (exact or situation.allow_split):
        return _CHANGES_RESULTS
    if name == "process_batch" and (exact or not situation.allow_split):
        return _CHANGES_RESULTS if not exact else "the virtual shards say it"
    if name == "process_batch" and not situation.own_batch:
        return f"measured with a smaller batch than the recipe's: {use('batch', slot='N')} sets another"
    return ""


def _values(name: str, config: Config, situation: Situation) -> Iterable[Candidate]:
    machine, cores = config.machine, situation.cores
    if name == "threads":
        # All cores, half of them (without hyper-threads, often), and so on.
        counts = {max(1, cores // machine.procs // n) for n in (1, 2, 4, 8)}
        return [_candidate(name, n) for n in sorted(counts, reverse=True)]
    if name == "procs":
        return _layouts(config, cores)
    if name == "process_batch":
        batch = config.recipe.global_batch // machine.procs
        return [_candidate(name, batch // n) for n in (2, 4, 8) if batch % n == 0 and batch // n > 1]
    values: dict[str, Sequence[SettingValue]] = {
        "channels_last": (not machine.channels_last,),
        "workers": sorted({0 if machine.backend in ("auto", "native") else 1, 1, 2, max(1, cores // 2), cores}),
        "convolution": ("torch", "winograd"),
        "allocator": ("keep", "huge", "system"),
        "mode": ("eager", "compile", "trace"),
        "compile": ("default", "reduce-overhead", "max-autotune") if machine.mode == "compile" else (),
        "engine": ["torch", *situation.engines],
        "eval_batch": sorted({max(1, round(machine.eval_batch * share)) for share in (0.25, 0.5, 2)}),
    }
    return [_candidate(name, value) for value in values[name]]


def _candidate(name: str, value: SettingValue) -> Candidate:
    return Candidate(shown=_text(value), changes={name: value})


def _text(value: SettingValue) -> str:
    """A value as TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _layouts(config: Config, cores: int) -> Iterable[Candidate]:
    """Processes that divide the batch evenly, with an even share of the cores each; exact reduction keeps threads."""
    recipe, machine = config.recipe, config.machine
    exact = machine.reduction == "exact"
    # Uneven parts are refused in training, so that there is no use in measuring them.
    parts = count_virtual_shards(recipe) if exact else recipe.global_batch
    for procs in (1, 2, 4, 8, 16, 32, 64):
        if procs <= cores and parts % procs == 0:
            threads = (machine.threads or DEFAULT_EXACT_THREADS) if exact else cores // procs
            changes: Changes = {"procs": procs} if exact else {"procs": procs, "threads": threads}
            yield Candidate(shown=_layout(procs, threads), changes=changes)


def _layout(procs: int, threads: int) -> str:
    return f"{procs} x {plural(threads, 'thread')}"
