"""`vernier study run`."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from vernier.cli.flags import JsonFlag, optional
from vernier.cli.launching import COMMAND_LINE, sigterm_as_interrupt, silence_profiler
from vernier.cli.output import print_json, progress_bar, rough_duration, say
from vernier.config.settings import DeviceName
from vernier.errors import EXIT_DONE, ConfigError

if TYPE_CHECKING:
    from vernier.measure.study.files import StudyDir
    from vernier.measure.study.run import StudyAsk

LONG_S = 600.0
"""A study longer than this comes with advice on how to make it shorter."""


def run(
    *,
    workload: Literal["resnet50", "sgemm", "bandwidth", "shapes"] = "resnet50",
    iterations: Annotated[int, arg(metavar="N")] = 500,
    repeats: Annotated[int, arg(metavar="N")] = 5,
    batch: Annotated[int, arg(metavar="N")] = 64,
    device: Annotated[DeviceName, optional("auto|cpu|cuda|hpu|mps|xpu")] = "auto",
    per: Literal["core", "socket"] = "core",
    virtual: Annotated[int, arg(metavar="N")] = 0,
    slow: Annotated[str | None, optional("INDEX=FACTOR,...")] = None,
    pause: Annotated[float, arg(metavar="SECONDS")] = 5.0,
    kernels: Annotated[int, arg(metavar="N")] = 3,
    seed: Annotated[int, arg(metavar="N")] = 0,
    out: Annotated[str | None, optional("DIR")] = None,
    json: JsonFlag = False,
) -> int:
    """Measure every device of this machine, several times each, in random order: are they equal?

    One machine a command; `vernier study merge` joins many, `vernier study analyze` says what they mean. Every repeat is a
    process of its own, pinned to its device; in between the device cools down. Run the same command with the same --out after
    an interruption and it goes on where it stopped.

    Args:
        workload: resnet50: training steps on a fixed batch; shapes: of the embedded recipe; sgemm: matrix products;
            bandwidth: copies in memory.
        iterations: Iterations a repeat, each of them timed.
        repeats: Repeats a device.
        batch: Images an iteration, for resnet50 and shapes.
        device: Which kind of device.
        per: On CPUs, what counts as a device.
        virtual: Measure so many simulated devices instead, on the real ones in turn. Labelled so everywhere.
        slow: Which of those are how many times as slow, e.g. 3=1.08,7=1.05.
        pause: Seconds between repeats where no sensor says when the device has cooled down.
        kernels: Further iterations that are profiled for the kernel table; 0: none.
        seed: Order of the repeats.
        out: The study's directory; left out: one in runs/, named after the time and the workload.
    """
    from vernier.clock import file_stamp
    from vernier.measure.study.run import StudyAsk, collect, parse_slow, targets

    for name, value, least in (
        ("--iterations", iterations, 2), ("--repeats", repeats, 1), ("--batch", batch, 1), ("--virtual", virtual, 0),
        ("--pause", pause, 0), ("--kernels", kernels, 0),
    ):  # fmt: skip
        if value < least:
            raise ConfigError(f"{name} {value:g} is out of range: it must be {least} or more.")
    silence_profiler()
    ask = StudyAsk(
        workload=workload, iterations=iterations, repeats=repeats, batch=batch, device=device, per=per, virtual=virtual,
        slow=parse_slow(slow) if slow else (), pause_s=pause, seed=seed, kernel_iterations=kernels,
        config=_training(workload, batch, device),
    )  # fmt: skip
    from vernier.devices import resolve

    found = resolve(device)
    chosen = targets(ask, found.name, found.identity())
    path = Path(out) if out else Path("runs") / f"{file_stamp()}-study-{workload}"
    with progress_bar("study") as bar, sigterm_as_interrupt():
        teller = _Teller(ask, len(chosen), bar)
        try:
            study = collect(ask, chosen, found.name, path, teller)
        except KeyboardInterrupt:
            say(teller.interrupted(path))
            raise
    repeats_there = len(study.repeats())
    said = {"study": str(study.path), "devices": len(chosen), "repeats": repeats_there, "simulated": virtual > 0}
    if json:
        print_json(said)
    else:
        simulated = " (SIMULATED)" if virtual else ""
        sys.stdout.write(
            f"{_count(said['devices'], 'device')}{simulated}, {_count(said['repeats'], 'repeat')} in {study.path}\n"
            f"vernier study analyze {study.path} says what they mean\n"
        )
    return EXIT_DONE


class _Teller:
    """What a person hears while a study runs: above all how long it will take, and how to make it shorter."""

    def __init__(self, ask: "StudyAsk", devices: int, bar: Callable[[int, int], None]) -> None:
        self._ask, self._devices, self._bar = ask, devices, bar

    def begin(self, study: "StudyDir", done: int, total: int) -> None:
        ask = self._ask
        batch = f" of batch {ask.batch}" if ask.config is not None else ""
        say(
            f"{_count(self._devices, 'device')} x {_count(ask.repeats, 'repeat')} x {ask.iterations} iterations{batch}"
            + (f"; {done} of {total} repeats are in {study.path} already" if done else "")
        )
        if self._devices == 1:
            say("one device: how devices differ from one another cannot be told, only how its repeats do")
        if done < total:
            say("how long that takes is known after a few iterations")

    def pace(self, seconds_per_iteration: float, left: int) -> None:
        ask = self._ask
        each_s = seconds_per_iteration * (ask.iterations + ask.kernel_iterations)
        total_s = left * each_s + (left - 1) * ask.pause_s
        say(
            f"about {seconds_per_iteration:.3g} s an iteration: {rough_duration(each_s)} a repeat, {rough_duration(total_s)} for "
            f"{_count(left, 'repeat')}, pauses of {ask.pause_s:g} s included, starts of processes not"
        )
        if total_s > LONG_S:
            smaller = "--iterations, --batch or --repeats" if ask.config is not None else "--iterations or --repeats"
            say(f"Ctrl-C and smaller {smaller} make it shorter; a study that was interrupted can be gone on with")

    def repeat(self, done: int, total: int, what: str) -> None:
        self._bar(done, total)
        if not sys.stderr.isatty():
            say(f"{done}/{total} {what}")

    def interrupted(self, path: Path) -> str:
        from vernier.measure.study.files import StudyDir

        kept = len(StudyDir(path).repeats()) if StudyDir.is_one(path) else 0
        again = [*COMMAND_LINE, *(() if "--out" in COMMAND_LINE else ("--out", str(path)))]
        return f"{_count(kept, 'repeat')} finished{f', kept in {path}' if kept else ''}; to go on: vernier {shlex.join(again)}"


def _count(number: Any, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _training(workload: str, batch: int, device: str) -> dict[str, Any] | None:
    """What the workload trains: ResNet-50 on one fixed batch, so that inputs are the same everywhere, or the embedded recipe."""
    from vernier import recipes as book
    from vernier.config import override, to_dict

    names = {"resnet50": "study-resnet50", "shapes": "shapes-quick"}
    if workload not in names:
        return None
    config = book.load(names[workload])
    settings = {"global_batch": batch, "machine.device": device, "eval.every_epochs": 0.0}
    if workload == "resnet50":
        settings["data.source"] = "static"
    for name, value in settings.items():
        config = override(config, name, value)
    return to_dict(config)
