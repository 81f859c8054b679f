"""A run on the terminal: a live bar for a person, one plain line every few seconds where there is no terminal, and one
line per so many steps where `limits.log_every_steps` asks for it.

Writes to standard error only; results on standard output are the command line's business.
"""

import threading
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import Progress, TaskID

from vernier.addresses import redact
from vernier.clock import duration, now_s
from vernier.measure.agreement import agreement_lines
from vernier.measure.profiles import describe_profile
from vernier.measure.published import speed_lines
from vernier.measure.throughput import Window
from vernier.records.events import EpochEvent, EvalEvent, Event, StartEvent, StepEvent, WarningEvent
from vernier.records.run import EvalResult, MemoryPrediction, RunSummary, TrainingSpeed
from vernier.records.what_ran import line_of
from vernier.references import plain, use
from vernier.wording import describe_batch, plural, printable, two_digits

from .bar import live_bar

PLAIN_EVERY_S = 5.0
TTA = " with flip test-time augmentation"
QUIET_LIMIT_S = 15.0
_FORMATS = {"top1": "top-1 {:.2f} %", "top5": "top-5 {:.2f} %", "loss": "loss {:.4f}"} | {
    name: name + " {:.4f}" for name in ("AP", "AP50", "AP75")
}
_PURPOSES = ("data_wait", "compute", "communication", "evaluation", "checkpoint", "other")


def format_figures(figures: Mapping[str, float | None]) -> str:
    """One line: top-1, top-5 and loss of a classifier, or AP, AP50 and AP75 of a detector, as far as they are there."""
    parts = [form.format(value) for name, form in _FORMATS.items() if (value := figures.get(name)) is not None]
    return "  ".join(parts) or "no figures: the data has nothing to measure"


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
        self._start_up_task: TaskID | None = None
        self._task: TaskID | None = None
        self._eval_task: TaskID | None = None
        self._done = threading.Event()
        self._activity, self._detail, self._activity_since_s = "starting up", "", now_s()
        self._heartbeat = threading.Thread(target=self._report_long_silence, daemon=True)

    def __enter__(self) -> "ConsoleObserver":
        if self._quiet:
            return self
        if self._console.is_terminal:
            self._bar = live_bar(self._console)
            self._start_up_task = self._bar.add_task("starting up", total=None)
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
                self._end_of_start_up()
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
        for line in opening_lines(event):
            self.say(line)
        if event.resumed_from is not None:
            self.say(f"  resuming from step {event.resumed_from:,}", style="bold")
        for note in event.notes:
            self.say(f"  {note}")
        if self._bar is not None:
            self._end_of_start_up()
            self._task = self._bar.add_task("first step", total=event.stop_step, completed=done)

    def _on_step(self, event: StepEvent) -> None:
        window, start = Window.of_step(event), self._start
        mean_s = window.wall_s / len(event.step_s)
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
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description="train", completed=event.step, parts=parts)
        if start.log_every_steps or (self._bar is None and now_s() - self._last_line_s >= PLAIN_EVERY_S):
            self.say("  ".join(parts))

    def _on_epoch(self, event: EpochEvent) -> None:
        """What training an epoch took; its evaluation has a line of its own."""
        if event.seconds is None or event.images_per_s_total is None:
            return
        figures = format_figures({"top1": event.top1, "top5": event.top5, "loss": event.loss})
        self.say(
            f"epoch {event.epoch}  trained {event.samples or 0:,} images in {event.seconds:.1f} s, "
            f"{event.images_per_s_total:,.0f} img/s  {figures}"
        )

    def _on_eval(self, event: EvalEvent) -> None:
        best = " (best so far)" if event.best else ""
        part = "" if event.exact else " [only part of the validation set]"
        self.say(
            f"epoch {event.epoch:.2f}  {format_figures(event.figures)}  "
            f"on {event.samples:,} images in {event.seconds:.1f} s{best}{part}{TTA if event.flip_tta else ''}"
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

    def _end_of_start_up(self) -> None:
        if self._bar is not None and self._start_up_task is not None:
            self._bar.remove_task(self._start_up_task)
            self._start_up_task = None

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


def opening_lines(start: StartEvent) -> list[str]:
    """What a run is about to do, and the values derived for it."""
    cut = f", stopping at {start.stop_step:,}" if start.stop_step < start.total_steps else ""
    if start.stop_step > start.total_steps:
        cut = f", then on to {start.stop_step:,} at the last rate"
    validation = f" and {start.val_samples:,} validation" if start.val_samples else ""
    epochs = "epoch" if start.epochs == 1 else "epochs"
    batch = describe_batch(
        world=start.world,
        process_batch=start.process_batch,
        accumulation=start.accumulation,
        virtual_shards=start.virtual_shards,
    )
    return [
        start.recipe,
        f"  {line_of([start.ran])}",
        f"  data       {start.data}: {start.train_samples:,} training{validation} images, {start.classes:,} classes",
        f"  batch      {batch}",
        f"  schedule   {plural(start.steps_per_epoch, 'step')} per epoch x {start.epochs:g} {epochs} = "
        f"{start.total_steps:,} steps{cut}, learning rate {start.lr_rule or f'{start.lr:g}'}, seed {start.seed}",
        *([f"  memory     {format_memory(start.memory)}"] if start.memory else []),
        f"  run        {start.run}",
    ]


def format_memory(prediction: MemoryPrediction) -> str:
    """The predicted peak in a few words."""
    when = " in evaluation" if prediction.in_evaluation else ""
    return f"about {two_digits(prediction.peak_bytes / 2**30)} GiB per process at the peak{when}, as predicted"


def closing_lines(summary: RunSummary, run: str, status: str) -> list[str]:
    """The summary of a run for standard output."""
    lines = [] if summary.ran is None else [f"ran        {summary.ran.line()}"]
    best, spent = summary.best, summary.spent_s
    if summary.result is not None:
        lines.append(_result_line(summary.result, summary.step or 0))
        if best is not None and best.step != summary.step:
            lines.append(f"best       {format_figures(best.figures)} at step {best.step:,}")
    if summary.reached_target and summary.result is not None:
        setting = "eval.target_ap" if "AP" in summary.result.figures else "eval.target_top1"
        lines.append(
            f"target     reached at step {summary.step or 0:,}, which ended the run; {use(setting, None)} trains to "
            "the end of the schedule"
        )
    if summary.stopped_early:
        lines.append("early stop the last evaluations were not better than the best one (eval.patience)")
    lines += [f"note       {note}" for note in summary.notes or ()]
    if summary.agreement is not None:
        lines += agreement_lines(summary.agreement)
    if summary.training is not None:
        lines.append(_speed_line(summary.training))
        lines += [f"published  {line}" for line in speed_lines(summary.published_speeds)]
    if summary.memory is not None and summary.memory.measured_bytes is not None:
        measured, predicted = (
            two_digits(size / 2**30) for size in (summary.memory.measured_bytes, summary.memory.predicted_bytes)
        )
        lines.append(f"memory     {measured} GiB at the peak of a process; {predicted} GiB were predicted")
    parts = ", ".join(
        f"{purpose.replace('_', ' ')} {duration(spent.get(purpose, 0.0))}"
        for purpose in _PURPOSES
        if purpose != "communication" or purpose in spent
    )
    lines.append(f"time       {duration(spent['total'])} = {parts}")
    if summary.profile is not None:
        lines += describe_profile(summary.profile)
    if summary.bad_images:
        lines.append(f"bad images {len(summary.bad_images)}, the first is {summary.bad_images[0].path}")
    lines += [f"run        {run}  ({status})", f"open       vernier report {run}"]
    return lines


def _result_line(result: EvalResult, step: int) -> str:
    averaged = "averaged " if result.averaged else ""
    part = ("" if result.exact else ", PART of the validation set") + (TTA if result.flip_tta else "")
    figures = format_figures(result.figures)
    return f"result     {figures}  ({averaged}weights at step {step:,}, {result.samples:,} images{part})"


def _speed_line(speed: TrainingSpeed) -> str:
    low, high = speed.images_per_s_total_95
    interval = f", 95 % interval {low:,.0f} to {high:,.0f}" if low is not None and high is not None else ""
    if not interval and speed.step_s is not None:
        interval = f", no 95 % interval ({speed.step_s.basis})"
    excluded = speed.warmup_steps_excluded
    return (
        f"speed      {speed.images_per_s_total:,.0f} img/s total on {plural(speed.devices, 'device')}, data included"
        f"{interval}; data wait {100 * (speed.data_wait_share or 0.0):.1f} %; "
        f"{plural(speed.steps_measured or 0, 'step')}, without the first{f' {excluded}' if excluded != 1 else ''}"
        f"{', timed in windows of several' if speed.step_times == 'windows' else ''}"
    )
