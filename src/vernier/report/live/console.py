"""Progress of a run on the terminal: a live bar; without a terminal, a line every few seconds.

With `limits.log_every_steps` also a line every N steps.

Writes to standard error only; results on standard output are the command line's business.
"""

import threading
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

from vernier.addresses import redact
from vernier.clock import now_s
from vernier.measure.agreement import agreement_lines
from vernier.measure.published import speed_lines
from vernier.measure.throughput import Window
from vernier.quantities import duration, rough_memory
from vernier.records.events import EpochEvent, EvalEvent, Event, StartEvent, StepEvent, WarningEvent
from vernier.records.run import RunSummary, own_figures
from vernier.records.what_ran import line_of
from vernier.references import plain, use
from vernier.templates import lines_of, open_templates
from vernier.wording import describe_batch, plural, printable

PLAIN_EVERY_S = 5.0
TTA = " with flip test-time augmentation"
QUIET_LIMIT_S = 15.0
_FORMATS = {"top1": "top-1 {:.2f} %", "top5": "top-5 {:.2f} %", "loss": "loss {:.4f}"} | {
    name: name + " {:.4f}" for name in ("AP", "AP50", "AP75")
}
_PURPOSES = ("data_wait", "compute", "compilation", "communication", "evaluation", "checkpoint", "other")


def format_figures(figures: Mapping[str, float | None]) -> str:
    """One line with those of top-1, top-5, loss, AP, AP50 and AP75 that are known, and the user's own."""
    parts = [form.format(value) for name, form in _FORMATS.items() if (value := figures.get(name)) is not None]
    parts += [f"{name} {value:.4g}" for name, value in own_figures(figures).items()]
    return "  ".join(parts) or "no figures: the data has nothing to measure"


_TEMPLATES = open_templates(
    __file__, plural=plural, figures=format_figures, memory=rough_memory, duration=duration, use=use
)
_TEMPLATES.globals["tta"] = TTA


class ConsoleObserver:
    """Shows events as they come, or with `quiet` only warnings. A context manager, so that the bar is removed whatever
    happens."""

    def __init__(
        self, console: Console | None = None, *, quiet: bool = False, word: Callable[[str], str] = plain
    ) -> None:
        """`word` words the options that messages name; without it they are named as settings."""
        self._quiet, self._word = quiet, word
        self._console = console or Console(stderr=True, highlight=False)
        self._start = StartEvent()
        self._last_line_s = now_s()
        self._step_s = 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)  # of the bar: starting up, then the training
        self._eval_task: TaskID | None = None
        self._done = threading.Event()
        self._activity, self._detail, self._activity_since_s = "starting up", "", now_s()
        self._heartbeat = threading.Thread(target=self._report_long_silence, daemon=True)

    def __enter__(self) -> "ConsoleObserver":
        if self._quiet:
            return self
        if self._console.is_terminal:
            self._bar = _live_bar(self._console)
            self._task = self._bar.add_task("starting up", total=None)
            self._bar.start()
        else:
            self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._bar is not None:
            self._bar.stop()

    # ------------------------------------------------------------------------------------------------ from the engine

    def emit(self, event: Event) -> None:
        match event:
            case StartEvent():
                self._on_start(event)
            case StepEvent():
                self._on_step(event)
            case EpochEvent():
                self._on_epoch(event)
            case EvalEvent():
                self._on_eval(event)
            case WarningEvent():
                self.warn(event.message)

    def progress(self, phase: str, done: int, total: int) -> None:
        self._begin(phase, f" {done}/{total}")
        if self._bar is not None:
            if self._eval_task is None:
                # An evaluation without a training run has no other task.
                self._bar.update(self._task, visible=self._start.total_steps > 0)
                self._eval_task = self._bar.add_task(phase, total=total)
            self._bar.update(self._eval_task, completed=done, parts=(f"{done}/{total}",))
            if done == total:
                self._bar.remove_task(self._eval_task)
                self._bar.refresh()  # so that what is printed next starts on a line of its own
                self._eval_task = None

    # ------------------------------------------------------------------------------------------------------ by event

    def _on_start(self, event: StartEvent) -> None:
        self._start, done = event, event.resumed_from or 0
        self._begin(f"step {done + 1}")
        for line in _opening_lines(event):
            self.say(line)
        if event.resumed_from is not None:
            self.say(f"  resuming from step {event.resumed_from:,}", style="bold")
        for note in (*event.notes, *(event.guarantees or ())):
            self.say(f"  {note}")
        if self._bar is not None:
            self._bar.reset(self._task, description="first step", total=event.stop_step, completed=done, visible=True)

    def _on_step(self, event: StepEvent) -> None:
        window, start = Window.of_step(event), self._start
        mean_s = window.wall_s / len(event.step_s)
        # A moving average: with single windows, the time that is left would jump.
        if not event.compilations or not self._step_s:
            self._step_s = 0.7 * self._step_s + 0.3 * mean_s if self._step_s else mean_s
        self._begin(f"step {event.step + 1}")
        accuracy = [format_figures({"top1": event.top1, "top5": event.top5})] if event.top1 is not None else []
        parts = (
            f"eta {duration(self._step_s * (start.stop_step - event.step))}",
            f"loss {event.loss:.4f}",
            *accuracy,
            f"{window.samples_per_s:,.0f} img/s",
            f"epoch {event.epoch:.2f}/{start.epochs:g}",
            f"step {event.step:,}/{start.stop_step:,}",
            f"lr {event.lr:.4g}",
            f"data wait {100 * window.data_wait_share:.0f} %",
            *([f"compiled {plural(event.compilations, 'graph')}"] if event.compilations else []),
        )
        if self._bar is not None:
            self._bar.update(self._task, description="train", completed=event.step, parts=parts)
        # With a bar, lines are printed only on request.
        if start.log_every_steps or (self._bar is None and now_s() - self._last_line_s >= PLAIN_EVERY_S):
            self.say("  ".join(parts))

    def _on_epoch(self, event: EpochEvent) -> None:
        """What training an epoch took; its evaluation has a line of its own."""
        if event.seconds is None or event.images_per_s_total is None:
            return
        figures = format_figures({"top1": event.top1, "top5": event.top5, "loss": event.loss})
        self.say(
            f"epoch {event.epoch}  trained {plural(event.samples or 0, 'image')} in {event.seconds:.1f} s, "
            f"{event.images_per_s_total:,.0f} img/s  {figures}"
        )

    def _on_eval(self, event: EvalEvent) -> None:
        best = " (best so far)" if event.best else ""
        part = "" if event.exact else f" [{event.describe_part()}]"
        self.say(
            f"epoch {event.epoch:.2f}  {format_figures(event.figures)}  "
            f"on {plural(event.samples, 'image')} in {event.seconds:.1f} s{best}{part}{TTA if event.flip_tta else ''}"
        )

    # ---------------------------------------------------------------------------------------------------------- lines

    def say(self, text: str, style: str | None = None) -> None:
        if not self._quiet:
            self._print(text, style)

    def warn(self, text: str) -> None:
        self._print(f"warning: {text}", "yellow")

    def _print(self, text: str, style: str | None) -> None:
        self._last_line_s = now_s()
        self._console.print(printable(redact(self._word(text))), style=style, markup=False, soft_wrap=True)

    def _begin(self, activity: str, detail: str = "") -> None:
        """Note what the run is doing now, and since when; `detail` may change while it does."""
        self._detail = detail
        if activity != self._activity:
            self._activity, self._activity_since_s = activity, now_s()

    def _report_long_silence(self) -> None:
        """Without a bar nothing moves on the terminal, so lines say for how long a long step has been running."""
        while not self._done.wait(1.0):
            if now_s() - self._last_line_s >= QUIET_LIMIT_S:
                seconds = now_s() - self._activity_since_s
                self.say(f"... {self._activity}{self._detail} still running after {seconds:.0f} s")


def _opening_lines(start: StartEvent) -> list[str]:
    """Lines about a run that starts, with the values derived for it."""
    batch = describe_batch(
        world=start.world,
        process_batch=start.process_batch,
        accumulation=start.accumulation,
        virtual_shards=start.virtual_shards,
    )
    return lines_of(_TEMPLATES, "opening.txt", {"start": start, "ran": line_of([start.ran]), "batch": batch})


def closing_lines(summary: RunSummary, run: str, status: str) -> list[str]:
    """The summary of a run for standard output."""
    spent = summary.spent_s
    parts = [
        f"{purpose.replace('_', ' ')} {duration(spent.get(purpose, 0.0))}"
        for purpose in _PURPOSES
        if purpose not in ("communication", "compilation") or purpose in spent
    ]
    values = {
        "s": summary,
        "run": run,
        "status": status,
        "parts": ", ".join(parts),
        "agreement": agreement_lines(summary.agreement) if summary.agreement else (),
        "speeds": speed_lines(summary.published_speeds),
        "profile": summary.profile.lines() if summary.profile else (),
    }
    return lines_of(_TEMPLATES, "closing.txt", values)


# ------------------------------------------------------------------------------------------------------------- the bar


def _live_bar(console: Console) -> Progress:
    """A progress display for tasks with the field `parts`, a sequence of texts, most important first.

    A task without parts shows how long it has been running.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(max(10, min(24, console.width // 5))),
        TaskProgressColumn("{task.percentage:>3.0f} %"),  # nothing for a task without a total
        _Parts(Column(ratio=1, no_wrap=True, overflow="crop")),
        console=console,
        expand=True,
        transient=True,
        redirect_stdout=False,  # results are written as they are, not wrapped to the width
        refresh_per_second=4,
    )


class _Parts(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("  ".join(task.fields.get("parts") or [duration(task.elapsed or 0.0)]))
