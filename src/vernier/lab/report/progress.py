"""What goes on while something is measured, on standard error: benchmarks, studies, searches and tests of devices.

A moving line on a terminal, a plain line every ten seconds elsewhere. A benchmark shows the configuration, what its
process is doing, the rate so far with its interval, and how long the rest will take; a study shows its repeats.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from vernier.clock import now_s
from vernier.lab.bench.progress import MEASURING, START_UP, WARM_UP, expected_process_s, remaining_s
from vernier.lab.bench.table import format_rate
from vernier.lab.records.bench import BenchRequest, Failure, MeasuringProgress, Plan, Round
from vernier.quantities import duration, rough_duration
from vernier.references import use
from vernier.wording import plural, printable

if TYPE_CHECKING:
    from rich.live import Live

    from vernier.api.session import Session
    from vernier.lab.bench.configurations import Configuration
    from vernier.lab.study.files import StudyDir
    from vernier.lab.study.run import StudySettings

PLAIN_EVERY_S = 10.0
_LONG_S = 600.0
"""A study longer than this comes with advice on how to make it shorter."""


class Display:
    """Prints lines that stay (`say`) and the present state (`show`).

    A context manager, so that the moving line is removed at the end.
    """

    def __init__(self, session: "Session") -> None:
        # A plain line at once would come before any news.
        self._session, self._printed_s = session, now_s()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        console = self._session.rich_console()
        if console.is_terminal and not self._session.quiet:
            from rich.live import Live

            # Drawn when there is news, about once per second: a thread that redraws would disturb what is measured.
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, *lines: str) -> None:
        self._printed_s = now_s()
        self._session.say(*lines)

    def show(self, text: str, *, news: bool = False) -> None:
        """Show what goes on now; `news` is a plain line where there is no terminal, however soon after the last."""
        if self._live is not None:
            from rich.text import Text

            text = printable(self._session.word(text))
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif news or now_s() - self._printed_s >= PLAIN_EVERY_S:
            self.say(text)


class BenchDisplay(Display):
    """The watcher of `lab.bench.session.run_bench`."""

    def __init__(self, session: "Session") -> None:
        super().__init__(session)
        self._rounds: Sequence[Round] = ()
        self._plan, self._total = Plan(), 0
        self._process_began_s = now_s()

    def begin(self, request: BenchRequest, configurations: Sequence[str], done: Sequence[Round]) -> None:
        """Print how many processes will run, how long that will take, and how many are measured already."""
        self._plan, self._total = request.plan, max(len(configurations) * request.repeats, len(done))
        self._rounds, self._process_began_s = list(done), now_s()
        self.say(opening_line(request, len(configurations)))
        if done:
            self.say(f"{len(done)} of {self._total} are measured already: completing an interrupted benchmark")

    def add(self, processes: int) -> None:
        """So many more processes will run."""
        self._total += processes

    def update(self, configuration: "Configuration", progress: MeasuringProgress | None) -> None:
        """Show what the running process is doing."""
        # Until a process has written its first progress it is loading PyTorch.
        phase = progress.phase if progress else START_UP
        left_s = remaining_s(self._rounds, self._total, self._plan, now_s() - self._process_began_s, phase)
        number = f"{len(self._rounds) + 1}/{self._total}"
        self.show(progress_line(number, configuration.name, progress, left_s))

    def finish(self, rounds: Sequence[Round]) -> None:
        """Print the result of a process in one line."""
        self._rounds, newest = list(rounds), rounds[-1].result
        self._process_began_s = now_s()
        # The table of results reports failures; after the last process nothing is left to announce.
        if isinstance(newest, Failure) or len(rounds) == self._total:
            return
        took = f" took {duration(newest.process_s)}" if newest.process_s is not None else " is done"
        self.say(
            f"process {len(rounds)} of {self._total} ({rounds[-1].configuration}){took}: "
            f"about {duration(remaining_s(rounds, self._total, self._plan, 0.0))} left"
        )


def opening_line(request: BenchRequest, configurations: int) -> str:
    """How many processes there will be, for how long they measure, and how long it takes with all the rest."""
    plan, count = request.plan, configurations * request.repeats
    several = f"{plural(configurations, 'configuration')} x {plural(request.repeats, 'repeat')}"
    processes = f"{plural(count, 'process')} ({several})"
    # A number of steps has no known duration on an unknown machine.
    if plan.steps is not None:
        return f"{processes}, {plan.steps} steps each, after start-up and warm-up"
    total_s = count * expected_process_s(plan)
    more = ", at most twice as long if rates differ much" if request.most_repeats else ""
    compiling = "; compiling comes on top" if any(mode != "eager" for mode in request.modes) else ""
    return (
        f"{processes}: measuring at most {duration(count * plan.max_seconds)}, "
        f"about {duration(total_s)} with start-up and warm-up{more}{compiling}"
    )


def progress_line(process: str, configuration: str, progress: MeasuringProgress | None, left_s: float) -> str:
    """What goes on, the most important first: a narrow terminal cuts the end off."""
    left = f"{duration(left_s)} left" if left_s >= 1 else "nearly done"
    if progress is None:
        return f"{left}  {process}  {configuration}  {START_UP}"
    steps = f", step {progress.steps + 1}" if progress.phase in (WARM_UP, MEASURING) else ""
    rate = progress.rate
    speed = ""
    if rate is not None:
        known = rate.low is not None and rate.high is not None
        speed = f"  {format_rate(rate) if known else f'{rate.value:,.1f}'} img/s"
    return f"{left}  {process}  {configuration}  {progress.phase}{steps}{speed}"


class StudyDisplay(Display):
    """The listener of `lab.study.run.collect`."""

    def __init__(self, session: "Session", settings: "StudySettings", devices: int) -> None:
        super().__init__(session)
        self._settings, self._devices, self._paced = settings, devices, False

    def begin(self, study: "StudyDir", done: int, total: int) -> None:
        """Print how many repeats there will be, and how many are measured already."""
        settings = self._settings
        batch = f" of batch {settings.batch}" if settings.config is not None else ""
        repeats = plural(settings.repeats, "repeat")
        self.say(
            f"{plural(self._devices, 'device')} x {repeats} x {settings.iterations} iterations{batch}"
            + (f"; {done} of {total} repeats are in {study.path} already" if done else "")
        )
        if self._devices == 1:
            self.say("one device: the study can show how its repeats differ, but not how devices differ")
        if done < total:
            self.say("an estimate of the duration follows after a few iterations")

    def progress(self, now: MeasuringProgress | None, left: int) -> None:
        """Print once how long the rest will take, and what would shorten it."""
        # The fastest: an iteration that was disturbed would promise too long a study.
        seconds_per_iteration = now.fastest_s if now else None
        if seconds_per_iteration is None or self._paced:
            return
        self._paced, settings = True, self._settings
        each_s = seconds_per_iteration * (settings.iterations + settings.kernel_iterations)
        # No pause after the last repeat.
        total_s = left * each_s + (left - 1) * settings.pause_s
        self.say(
            f"about {seconds_per_iteration:.3g} s per iteration: {rough_duration(each_s)} per repeat, "
            f"{rough_duration(total_s)} for {plural(left, 'repeat')}, with pauses of {settings.pause_s:g} s, "
            "without the start-up of processes"
        )
        if total_s > _LONG_S:
            batch = f", {use('batch')}" if settings.config is not None else ""
            self.say(
                f"press Ctrl-C and use smaller {use('iterations')}{batch} or {use('repeats')} to shorten it; "
                "an interrupted study can be resumed"
            )

    def repeat(self, done: int, total: int, what: str) -> None:
        """Show which repeat runs."""
        self.show(f"{done}/{total} {what}", news=True)
