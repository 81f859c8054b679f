"""`vernier study run`: its flags, and what it says while a study is measured."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from vernier.cli.flags import (
    DEVICE_NAMES,
    IntFlag,
    JsonFlag,
    OptionalDir,
    PrecisionFlag,
    QuietFlag,
    Switch,
    apply_flags,
    optional,
)
from vernier.cli.launching import COMMAND_LINE, sigterm_as_interrupt, silence_profiler
from vernier.cli.output import inform, print_result, progress_bar, say, set_quiet
from vernier.errors import EXIT_DONE, ConfigError
from vernier.wording import plural, rough_duration

if TYPE_CHECKING:
    from vernier.measure.study.files import StudyDir
    from vernier.measure.study.run import StudySettings
    from vernier.records.bench import ConfigTree

LONG_S = 600.0
"""A study longer than this comes with advice on how to make it shorter."""


def run(
    *,
    workload: Literal["resnet50", "sgemm", "bandwidth", "shapes"] = "resnet50",
    iterations: IntFlag = 500,
    repeats: IntFlag = 5,
    batch: IntFlag = 64,
    precision: PrecisionFlag = None,
    allow_slow: Switch = False,
    device: Annotated[str, optional(DEVICE_NAMES)] = "auto",
    per: Literal["core", "socket"] = "core",
    virtual: IntFlag = 0,
    slow: Annotated[str | None, optional("INDEX=FACTOR,...")] = None,
    pause: Annotated[float, arg(metavar="SECONDS")] = 5.0,
    kernels: IntFlag = 3,
    seed: IntFlag = 0,
    out: OptionalDir = None,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Measure every device of this machine several times, in random order, to see whether they are equal.

    One command per machine: `vernier study merge` joins several machines, `vernier study analyze` says which devices
    are slow. Each repeat runs in a process of its own, pinned to its device, after the device has cooled down. To
    resume an interrupted study, run the same command with the same --out.

    Args:
        workload: Training steps on a fixed batch (resnet50) or of the built-in recipe (shapes), matrix products
            (sgemm), or copies in memory (bandwidth).
        iterations: Iterations per repeat; each is timed.
        repeats: Repeats per device.
        batch: Images per iteration, for resnet50 and shapes.
        precision: Number format the network computes in, for resnet50 and shapes. Default: fp32.
        allow_slow: Allow a precision that this device has no hardware for.
        device: Kind of device to measure.
        per: On CPUs: whether a core or a socket counts as one device.
        virtual: Measure this many simulated devices on the real ones, labelled as simulated. 0: real devices.
        slow: Simulated devices to slow down and by which factor, e.g. 3=1.08,7=1.05.
        pause: Seconds between repeats if there is no temperature sensor to wait for.
        kernels: Extra iterations to profile for the kernel table; 0: none.
        seed: Seed of the random order.
        out: Directory of the study. Default: a new one in runs/, named by time and workload.

    Examples:
        vernier study run --workload sgemm --repeats 3
        vernier study run --workload resnet50 --batch 8 --iterations 50
    """
    set_quiet(quiet)
    least_values = {"iterations": 2, "repeats": 1, "batch": 1, "virtual": 0, "pause": 0, "kernels": 0}
    values = (iterations, repeats, batch, virtual, pause, kernels)
    for (name, least), value in zip(least_values.items(), values, strict=True):
        if value < least:
            raise ConfigError(f"--{name} {value:g} is out of range: it must be {least} or more.")
    from vernier.clock import file_stamp
    from vernier.devices import resolve
    from vernier.measure.study.run import StudySettings, collect, find_targets, parse_slow

    silence_profiler()
    settings = StudySettings(
        workload=workload,
        iterations=iterations,
        repeats=repeats,
        batch=batch,
        device=device,
        per=per,
        virtual=virtual,
        slow=parse_slow(slow) if slow else (),
        pause_s=pause,
        seed=seed,
        kernel_iterations=kernels,
        config=_training_config(workload, batch, device, precision, allow_slow),
    )
    resolved = resolve(device)
    targets = find_targets(settings, resolved)
    path = Path(out) if out else Path("runs") / f"{file_stamp()}-study-{workload}"
    with progress_bar("study") as bar, sigterm_as_interrupt():
        progress = _Progress(settings, len(targets), bar)
        try:
            study = collect(settings, targets, resolved.name, path, progress)
        except KeyboardInterrupt:
            say(progress.describe_interruption(path))
            raise
    count = len(study.repeats())
    result = {"study": study.path, "devices": len(targets), "repeats": count, "simulated": virtual > 0}
    lines = [
        f"{plural(len(targets), 'device')}{' (SIMULATED)' * (virtual > 0)}, {plural(count, 'repeat')} in {study.path}",
        f"Next: vernier study analyze {study.path}",
    ]
    print_result(result, json, lambda _: lines)
    return EXIT_DONE


class _Progress:
    """What a person sees while a study runs: above all how long it will take, and how to make it shorter."""

    def __init__(self, settings: "StudySettings", devices: int, bar: Callable[[int, int], None]) -> None:
        self._settings, self._devices, self._bar = settings, devices, bar

    def begin(self, study: "StudyDir", done: int, total: int) -> None:
        settings = self._settings
        batch = f" of batch {settings.batch}" if settings.config is not None else ""
        repeats = plural(settings.repeats, "repeat")
        inform(
            f"{plural(self._devices, 'device')} x {repeats} x {settings.iterations} iterations{batch}"
            + (f"; {done} of {total} repeats are in {study.path} already" if done else "")
        )
        if self._devices == 1:
            inform("one device: the study can show how its repeats differ, but not how devices differ")
        if done < total:
            inform("an estimate of the duration follows after a few iterations")

    def pace(self, seconds_per_iteration: float, left: int) -> None:
        settings = self._settings
        each_s = seconds_per_iteration * (settings.iterations + settings.kernel_iterations)
        total_s = left * each_s + (left - 1) * settings.pause_s
        inform(
            f"about {seconds_per_iteration:.3g} s per iteration: {rough_duration(each_s)} per repeat, "
            f"{rough_duration(total_s)} for {plural(left, 'repeat')}, with pauses of {settings.pause_s:g} s, "
            "without the start-up of processes"
        )
        if total_s > LONG_S:
            flags = "--iterations, --batch or --repeats" if settings.config is not None else "--iterations or --repeats"
            inform(f"press Ctrl-C and use smaller {flags} to shorten it; an interrupted study can be resumed")

    def repeat(self, done: int, total: int, what: str) -> None:
        self._bar(done, total)
        if not sys.stderr.isatty():
            inform(f"{done}/{total} {what}")

    def describe_interruption(self, path: Path) -> str:
        """How many repeats are finished, and the command that resumes the study."""
        from vernier.measure.study.files import StudyDir

        finished = len(StudyDir(path).repeats()) if StudyDir.is_study(path) else 0
        again = [*COMMAND_LINE, *(() if "--out" in COMMAND_LINE else ("--out", str(path)))]
        where = f" and saved in {path}" if finished else ""
        return f"{plural(finished, 'repeat')} finished{where}; to resume: vernier {shlex.join(again)}"


def _training_config(
    workload: str, batch: int, device: str, precision: str | None, allow_slow: bool
) -> "ConfigTree | None":
    """What the workload trains: ResNet-50 on one fixed batch, so that all inputs are equal, or the built-in recipe."""
    from vernier import recipes as book
    from vernier.config import to_dict

    names = {"resnet50": "study-resnet50", "shapes": "shapes-quick"}
    if workload not in names:
        if precision is not None:
            raise ConfigError(
                f"--precision {precision} is for workloads that train, resnet50 and shapes; {workload} is always fp32."
            )
        return None
    settings = {
        "global_batch": batch,
        "machine.device": device,
        "machine.precision": precision,
        "machine.allow_slow": allow_slow or None,
        "eval.every_epochs": 0.0,
        "data.source": "static" if workload == "resnet50" else None,
    }
    return to_dict(apply_flags(book.load(names[workload]), settings, ()))
