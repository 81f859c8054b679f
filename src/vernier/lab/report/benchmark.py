"""A running benchmark on standard error: one moving line on a terminal, a plain line every ten seconds elsewhere.

It shows the arm, what its process is doing, the rate so far with its interval, and how long the rest will take.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vernier.clock import duration, now_s
from vernier.lab.bench.progress import MEASURING, START_UP, WARM_UP, Running, expected_process_s, remaining_s
from vernier.lab.bench.table import format_rate
from vernier.records.bench import ArmFailure, ArmProgress, BenchRequest, Plan, Round
from vernier.wording import plural, printable

if TYPE_CHECKING:
    from vernier.lab.bench.arms import Arm

PLAIN_EVERY_S = 10.0


class LiveDisplay:
    """The watcher of `lab.bench.session.run_bench`; `quiet`: it prints nothing.

    A context manager, so that the line is removed at the end.
    """

    def __init__(self, console: Any = None, *, quiet: bool = False) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._live: Any = None
        self._arms: Sequence[str] = ()
        self._rounds: Sequence[Round] = ()
        self._plan, self._repeats = Plan(), 1
        self._printed_s = self._process_began_s = now_s()

    def __enter__(self) -> "LiveDisplay":
        if self._console.is_terminal and not self._quiet:
            from rich.live import Live

            # Drawn when there is news, about once per second: a thread that redraws would disturb what is measured.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, request: BenchRequest, arms: Sequence[str]) -> None:
        """Print how many processes will run, and how long that will take."""
        self._arms, self._plan, self._repeats = arms, request.plan, request.repeats
        self._printed_s = self._process_began_s = now_s()
        self._print(opening_line(request, len(arms)))

    def update(self, arm: "Arm", progress: ArmProgress | None) -> None:
        """Show what the running process is doing."""
        running = Running(
            arm=arm.name,
            seconds=now_s() - self._process_began_s,
            phase=progress.phase if progress else START_UP,
        )
        number = f"{len(self._rounds) + 1}/{len(self._arms) * self._repeats}"
        text = progress_line(number, arm.name, progress, self._left_s(running))
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(printable(text), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif now_s() - self._printed_s >= PLAIN_EVERY_S:
            self._print(text)

    def finish(self, rounds: Sequence[Round]) -> None:
        """Print the result of a process in one line."""
        self._rounds, newest = list(rounds), rounds[-1].result
        self._process_began_s = now_s()
        if isinstance(newest, ArmFailure) or len(rounds) == len(self._arms) * self._repeats:
            return
        took = f" took {duration(newest.process_s)}" if newest.process_s is not None else " is done"
        self._print(
            f"process {len(rounds)} of {len(self._arms) * self._repeats} ({rounds[-1].arm}){took}: "
            f"about {duration(self._left_s(Running(arm='', seconds=0.0)))} left"
        )

    def _left_s(self, running: Running) -> float:
        return remaining_s(self._arms, self._rounds, self._repeats, self._plan, running)

    def _print(self, text: str) -> None:
        self._printed_s = now_s()
        if not self._quiet:
            self._console.print(printable(text), markup=False, soft_wrap=True)


def opening_line(request: BenchRequest, arms: int) -> str:
    """How many processes there will be, for how long they measure, and how long it takes with all the rest."""
    plan, count = request.plan, arms * request.repeats
    processes = f"{plural(count, 'process')} ({plural(arms, 'arm')} x {plural(request.repeats, 'repeat')})"
    if plan.steps is not None:
        return f"{processes}, {plan.steps} steps each, after start-up and warm-up"
    total_s = count * expected_process_s(plan)
    compiling = "; compiling comes on top" if any(mode != "eager" for mode in request.modes) else ""
    return (
        f"{processes}: measuring at most {duration(count * plan.max_seconds)}, "
        f"about {duration(total_s)} with start-up and warm-up{compiling}"
    )


def progress_line(process: str, arm: str, progress: ArmProgress | None, left_s: float) -> str:
    """What goes on, the most important first: a narrow terminal cuts the end off."""
    left = f"{duration(left_s)} left" if left_s >= 1 else "nearly done"
    if progress is None:
        return f"{left}  {process}  {arm}  {START_UP}"
    steps = f", step {progress.steps + 1}" if progress.phase in (WARM_UP, MEASURING) else ""
    rate = progress.rate
    speed = ""
    if rate is not None:
        known = rate.low is not None and rate.high is not None
        speed = f"  {format_rate(rate) if known else f'{rate.value:,.1f}'} img/s"
    return f"{left}  {process}  {arm}  {progress.phase}{steps}{speed}"
