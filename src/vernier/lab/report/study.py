"""A running study on standard error: what is measured, how long it will take, how to make it shorter; and the row of a
study in `vernier runs`."""

import sys
from collections.abc import Callable
from pathlib import Path

from vernier.lab.study.files import StudyDir
from vernier.lab.study.run import StudySettings
from vernier.references import use
from vernier.report.runs import ListedKind, RunRow
from vernier.store.space import newest_change_s
from vernier.wording import plural, rough_duration

LONG_S = 600.0
"""A study longer than this comes with advice on how to make it shorter."""


class StudyDisplay:
    """The listener of `lab.study.run.collect`. `say` prints lines, `bar` takes the repeats done and all of them."""

    def __init__(
        self, settings: StudySettings, devices: int, say: Callable[..., None], bar: Callable[[int, int], None]
    ) -> None:
        self._settings, self._devices, self._say, self._bar = settings, devices, say, bar

    def begin(self, study: StudyDir, done: int, total: int) -> None:
        """Print how many repeats there will be, and how many are measured already."""
        settings = self._settings
        batch = f" of batch {settings.batch}" if settings.config is not None else ""
        repeats = plural(settings.repeats, "repeat")
        self._say(
            f"{plural(self._devices, 'device')} x {repeats} x {settings.iterations} iterations{batch}"
            + (f"; {done} of {total} repeats are in {study.path} already" if done else "")
        )
        if self._devices == 1:
            self._say("one device: the study can show how its repeats differ, but not how devices differ")
        if done < total:
            self._say("an estimate of the duration follows after a few iterations")

    def pace(self, seconds_per_iteration: float, left: int) -> None:
        """Print how long the rest will take, and what would shorten it."""
        settings = self._settings
        each_s = seconds_per_iteration * (settings.iterations + settings.kernel_iterations)
        total_s = left * each_s + (left - 1) * settings.pause_s
        self._say(
            f"about {seconds_per_iteration:.3g} s per iteration: {rough_duration(each_s)} per repeat, "
            f"{rough_duration(total_s)} for {plural(left, 'repeat')}, with pauses of {settings.pause_s:g} s, "
            "without the start-up of processes"
        )
        if total_s > LONG_S:
            batch = f", {use('batch')}" if settings.config is not None else ""
            self._say(
                f"press Ctrl-C and use smaller {use('iterations')}{batch} or {use('repeats')} to shorten it; "
                "an interrupted study can be resumed"
            )

    def repeat(self, done: int, total: int, what: str) -> None:
        """Move the bar; without a terminal, print a line."""
        self._bar(done, total)
        if not sys.stderr.isatty():
            self._say(f"{done}/{total} {what}")


def _row(path: Path, now_s: float) -> RunRow:
    study = StudyDir(path)
    meta, finished = study.meta(), len(study.finished())
    total = meta.repeats * len(meta.devices)
    return RunRow(
        name=path.name,
        path=path,
        kind="study",
        recipe=meta.workload,
        ran=f"study of {meta.workload} on {len(meta.devices)} devices{' (SIMULATED)' if meta.simulated else ''}",
        state="running" if study.is_locked() else "finished" if finished >= total else "interrupted",
        step=finished,
        steps=total,
        bytes=0,
        age_s=max(0.0, now_s - newest_change_s(path)),
    )


KIND = ListedKind(recognizes=StudyDir.is_study, row=_row)
