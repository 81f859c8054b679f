"""A run on the terminal: a live bar where there is a person, one plain line every few seconds where there is not.

Writes to standard error only; results on standard output are the command line's business.
"""

import threading
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from vernier.clock import now_s
from vernier.measure.profile.summary import describe_profile
from vernier.measure.statistics.agreement import agreement_lines
from vernier.records.codec import decode
from vernier.records.profile import ProfileSummary
from vernier.records.run import Agreement

PLAIN_EVERY_S = 5.0
TTA = " with flip test-time augmentation"
QUIET_LIMIT_S = 15.0


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def figures(result: dict[str, Any]) -> str:
    """A result in a line: top-1, top-5 and loss of a classifier, AP, AP50 and AP75 of a detector; those it has."""
    forms = {"top1": "top-1 {:.2f} %", "top5": "top-5 {:.2f} %", "loss": "loss {:.4f}"}
    forms |= {name: name + " {:.4f}" for name in ("AP", "AP50", "AP75")}
    shown = [form.format(result[k]) for k, form in forms.items() if result.get(k) is not None]
    return "  ".join(shown) or "nothing to be found in the data"


class ConsoleObserver:
    """Shows events as they come. Use as a context manager, so that the bar is taken down whatever happens."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._start: dict[str, Any] = {}
        self._last_line_s = now_s()
        self._step_s = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._eval_task: TaskID | None = None
        self._done = threading.Event()
        self._doing = "getting ready"
        self._heart = threading.Thread(target=self._heartbeat, daemon=True)

    def __enter__(self) -> "ConsoleObserver":
        if self._live:
            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[info]}"),
                TimeElapsedColumn(), console=self._console, transient=True, refresh_per_second=4,
            )  # fmt: skip
            self._bar.start()
        else:
            self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._bar is not None:
            self._bar.stop()

    # ------------------------------------------------------------------------------------------------ from the engine

    def emit(self, event: dict[str, Any]) -> None:
        show = getattr(self, f"_on_{event['kind']}", None)
        if show is not None:
            show(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        self._doing = f"{phase} {done}/{total}"
        if self._bar is not None:
            if self._eval_task is None:
                self._eval_task = self._bar.add_task(phase, total=total, info="")
            self._bar.update(self._eval_task, completed=done, info=f"{done}/{total}")
            if done == total:
                self._bar.remove_task(self._eval_task)
                self._eval_task = None

    # ------------------------------------------------------------------------------------------------------ by event

    def _on_start(self, e: dict[str, Any]) -> None:
        self._start = e
        self._doing = f"step {(e['resumed_from'] or 0) + 1}"
        for line in opening_lines(e):
            self.say(line)
        if e["resumed_from"] is not None:
            self.say(f"  going on from step {e['resumed_from']:,}", style="bold")
        for note in e.get("notes", ()):
            self.say(f"  {note}")
        if self._bar is not None:
            self._task = self._bar.add_task(
                "train", total=e["stop_step"], completed=e["resumed_from"] or 0, info="first step ..."
            )

    def _on_step(self, e: dict[str, Any]) -> None:
        wall, steps = sum(e["step_s"]), len(e["step_s"])
        self._step_s = wall / steps if not self._step_s else 0.7 * self._step_s + 0.3 * wall / steps
        left = self._step_s * (self._start["stop_step"] - e["step"])
        wait = sum(e["wait_s"]) / wall if wall else 0.0
        self._doing = f"step {e['step'] + 1}"
        info = (
            f"epoch {e['epoch']:.2f}/{self._start['epochs']:g}  step {e['step']}/{self._start['stop_step']}  loss {e['loss']:.4f}  "
            f"lr {e['lr']:.4g}  {e['samples'] / wall:,.0f} img/s  data wait {100 * wait:.0f} %  eta {duration(left)}"
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=e["step"], info=info)
        elif now_s() - self._last_line_s >= PLAIN_EVERY_S:
            self.say(info)

    def _on_eval(self, e: dict[str, Any]) -> None:
        best = " (best so far)" if e["best"] else ""
        part = "" if e["exact"] else " [only part of the validation set]"
        part += TTA if e.get("flip_tta") else ""
        self.say(
            f"epoch {e['epoch']:.2f}  {figures(e)}  on {e['samples']:,} images in {e['seconds']:.1f} s{best}{part}"
        )

    def _on_warning(self, e: dict[str, Any]) -> None:
        self.warn(e["message"])

    # ---------------------------------------------------------------------------------------------------------- lines

    def say(self, text: str, style: str | None = None) -> None:
        self._last_line_s = now_s()
        self._console.print(text, style=style, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", style="yellow")

    def _heartbeat(self) -> None:
        """Without a terminal nothing moves, so say that work goes on when a step is long."""
        while not self._done.wait(1.0):
            quiet = now_s() - self._last_line_s
            if quiet >= QUIET_LIMIT_S:
                self.say(f"... {self._doing} still going after {quiet:.0f} s")


def plural(count: int, word: str) -> str:
    """1 process, 2 processes, 1,000 steps."""
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count:,} {word}{ending}"


def opening_lines(start: dict[str, Any]) -> list[str]:
    """What a run is about to do, and what was derived for it."""
    e = start
    cut = f", stopping at {e['stop_step']:,}" if e["stop_step"] < e["total_steps"] else ""
    validation = f" and {e['val_samples']:,} validation" if e["val_samples"] else ""
    return [
        f"{e['recipe']}",
        f"  model      {e['model']}, {e['parameters']:,} parameters, {plural(e['classes'], 'class')}",
        f"  data       {e['data']}: {e['train_samples']:,} training{validation} images",
        f"  machine    {e['device']}, {plural(e['world'], 'process')} x {plural(e['threads'], 'thread')}, "
        f"{e['precision']}, {e['mode']}, {plural(e['workers'], 'loader thread')}",
        f"  batch      {e['global_batch']:,} = {plural(e['world'], 'process')} x {plural(e['process_batch'], 'image')} x "
        f"{plural(e['accumulation'], 'accumulation step')}",
        f"  schedule   {plural(e['steps_per_epoch'], 'step')} an epoch x {e['epochs']:g} epochs = {e['total_steps']:,} steps{cut}, "
        f"learning rate {e['lr']:g}, seed {e['seed']}",
        f"  run        {e['run']}",
    ]


def _interval(ends: list[float | None] | None) -> str:
    """Where a rate lies, when the samples can say."""
    if ends is None or ends[0] is None or ends[1] is None:
        return ""
    return f", 95 % interval {ends[0]:,.0f} to {ends[1]:,.0f}"


def closing_lines(summary: dict[str, Any], run: str, status: str) -> list[str]:
    """The summary of a run for standard output."""
    lines = []
    result, training, spent = summary["result"], summary["training"], summary["spent_s"]
    if result:
        weights = "averaged weights" if result["averaged"] else "weights"
        part = "" if result["exact"] else ", PART of the validation set"
        part += TTA if result.get("flip_tta") else ""
        lines.append(
            f"result     {figures(result)}  ({weights} at step {summary['step']:,}, {result['samples']:,} images{part})"
        )
    if summary["best"] and result and summary["best"]["step"] != summary["step"]:
        lines.append(f"best       {figures(summary['best'])} at step {summary['best']['step']:,}")
    if summary.get("agreement"):
        lines += agreement_lines(decode(Agreement, summary["agreement"]))
    if training:
        lines.append(
            f"speed      {training['images_per_s_total']:,.0f} img/s in all on {plural(training['devices'], 'device')}, data included"
            f"{_interval(training.get('images_per_s_total_95'))}; "
            f"data wait {100 * training['data_wait_share']:.1f} %; {plural(training['steps_measured'], 'step')}, "
            f"the first {training['warmup_steps_excluded']} left out"
        )
    named = [
        ("data wait", "data_wait"),
        ("compute", "compute"),
        *([("communication", "communication")] if "communication" in spent else []),
        ("evaluation", "evaluation"),
        ("checkpoint", "checkpoint"),
        ("other", "other"),
    ]
    parts = ", ".join(f"{label} {duration(spent.get(k, 0.0))}" for label, k in named)
    lines.append(f"time       {duration(spent['total'])} = {parts}")
    if summary.get("profile"):
        lines += describe_profile(decode(ProfileSummary, summary["profile"]))
    if bad := summary.get("bad_images"):
        lines.append(f"bad images {len(bad)}, the first is {bad[0]['path']}")
    lines.append(f"run        {run}  ({status})")
    return lines
