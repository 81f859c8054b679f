"""The rows of benchmarks and studies in `vernier runs`."""

from dataclasses import replace
from pathlib import Path

from vernier.lab.records.bench import StepRow, read_bench
from vernier.lab.study.files import StudyDir
from vernier.report.page.identity import heading, parts_of_record
from vernier.report.runs import ListedKind, RunRow, newest_change_s, run_row
from vernier.store import RunDir


def _bench_row(path: Path, now_s: float) -> RunRow:
    """The highest throughput of all configurations, and what ran."""
    # Without samples: a list of many benchmarks must not read megabytes of step times.
    row, rows = run_row(RunDir(path), now_s), read_bench(path, samples=False).measured
    rates = [each.images_per_s_total.value for each in rows if isinstance(each, StepRow)]
    ran = next((each.ran for each in rows if each.ran is not None), None)
    return replace(
        row,
        ran=heading(parts_of_record((ran,))) if ran is not None else row.ran,
        metric="images_per_s" if rates else None,
        result=max(rates, default=None),
    )


def _study_row(path: Path, now_s: float) -> RunRow:
    study = StudyDir(path)
    meta, finished = study.meta(), len(study.finished())
    total = meta.repeats * len(meta.devices)
    return RunRow(
        name=path.name,
        path=path,
        kind="study",
        recipe=meta.workload,
        ran=f"study of {meta.workload} on {len(meta.devices)} devices{' (SIMULATED)' if meta.simulated else ''}",
        # The lock first: a study that is being extended can have all repeats of its former plan.
        state="running" if study.is_locked() else "finished" if finished >= total else "interrupted",
        step=finished,
        steps=total,
        bytes=0,
        age_s=max(0.0, now_s - newest_change_s(path)),
    )


BENCH = ListedKind(recognizes=lambda path: RunDir(path).is_bench and RunDir.is_run(path), row=_bench_row)
STUDY = ListedKind(recognizes=StudyDir.is_study, row=_study_row)
