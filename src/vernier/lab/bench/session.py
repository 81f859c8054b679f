"""A benchmark from its request to its run directory: runs the arms, pools them, and keeps every sample on disk."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from vernier.clock import now_s
from vernier.config import config_from_tree, override, to_dict
from vernier.errors import ConfigError, Refusal, RunFailed
from vernier.frozen import frozen
from vernier.records.bench import (
    ArmComparison,
    ArmFailure,
    ArmProgress,
    BenchRequest,
    BenchResult,
    FailedRow,
    Round,
    StepRow,
)
from vernier.records.codec import encode
from vernier.records.what_ran import line_of
from vernier.references import plain
from vernier.store import RunDir

from .arms import Arm, run_arms
from .combinations import both_sides, pair_sides
from .measuring import METHOD
from .progress import total_spent_s
from .rows import add_precision_speedup, add_scaling, compare_arms, pool_rounds
from .table import markdown


class Watcher(Protocol):
    """Told how a benchmark goes on, for people: `vernier.lab.report.benchmark` prints it."""

    def begin(self, request: BenchRequest, arms: Sequence[str]) -> None:
        """These arms will run."""
        ...

    def update(self, arm: Arm, progress: ArmProgress | None) -> None:
        """About once per second while an arm's process runs; None: the process has not said what it is doing."""
        ...

    def finish(self, rounds: Sequence[Round]) -> None:
        """A process has ended; these are the results so far."""
        ...


@frozen
class Outcome:
    """A benchmark that was run; `stopped` by Ctrl-C before its end."""

    run: RunDir
    result: BenchResult
    stopped: bool

    @property
    def slower(self) -> bool:
        """Whether any arm is certainly slower than what it was compared with."""
        return any(c.verdict == "slower" for c in self.result.compared)


def run_bench(request: BenchRequest, out: Path, watcher: Watcher) -> Outcome:
    """Measure every arm. The run directory holds all samples from the first result on.

    Ctrl-C ends it early with what there is; before the first result nothing is left behind.
    """
    began_s = now_s()
    with both_sides(request) as sides:
        arms, total = sides.arms, len(sides.arms) * request.repeats
        config = config_from_tree(request.config)
        name = f"bench-{'scaling' if request.scaling else request.what}-{config.recipe.name}"
        run = RunDir.create(out, name)
        with run.locked():
            measured = config_from_tree(arms[0].request.config) if len(arms) == 1 else config
            run.write_config(to_dict(override(measured, "name", name)))
            run.write_status("running")
            rounds: list[Round] = []
            interruption: list[str] = []
            own_arms = {a.name for a in arms if a.source is None}
            watcher.begin(request, [arm.name for arm in arms])
            try:
                for newest in run_arms(arms, repeats=request.repeats, seed=request.seed, on_progress=watcher.update):
                    rounds.append(newest)
                    result = newest.result
                    if newest.arm in own_arms and not isinstance(result, ArmFailure) and not run.read_environment():
                        run.write_environment(encode(result.environment))
                    _write(run, name, _pool(request, arms, rounds, sides.notes))
                    watcher.finish(rounds)
            except (KeyboardInterrupt, ConfigError, RunFailed) as error:
                interruption = [_explain_interruption(error, run, arms, rounds, total)]
            pooled = _pool(request, arms, rounds, [*sides.notes, *interruption])
            pooled = replace(pooled, spent_s=total_spent_s(rounds, now_s() - began_s))
            fail_if_nothing_measured(pooled, run)
            _write(run, name, pooled)
            run.write_status("stopped" if interruption else "finished", summary=_run_summary(request, pooled))
    return Outcome(run=run, result=pooled, stopped=bool(interruption))


def _explain_interruption(
    error: KeyboardInterrupt | Refusal, run: RunDir, arms: Sequence[Arm], rounds: Sequence[Round], total: int
) -> str:
    """After Ctrl-C, with some results, a note of what was left out. Raises for any other error, or without results."""
    if not rounds:
        shutil.rmtree(run.path)
        raise error
    if not isinstance(error, KeyboardInterrupt):
        run.write_status("failed", reason=str(error))
        raise RunFailed(
            f"{error.message} The {len(rounds)} results before it, of {total}, are in {run.path}."
        ) from None
    missing = [a.name for a in arms if a.name not in {r.arm for r in rounds}]
    never = f"; never measured: {', '.join(missing)}" if missing else ""
    return f"INTERRUPTED after {len(rounds)} of {total} processes{never}"


def _pool(request: BenchRequest, arms: Sequence[Arm], rounds: Sequence[Round], notes: Sequence[str]) -> BenchResult:
    measured = {r.arm for r in rounds}
    rows = [pool_rounds(a.name, a.labels, rounds) for a in arms if a.name in measured]
    if request.scaling:
        rows = add_scaling(rows, rounds, request.scaling)
    rows = add_precision_speedup(rows, rounds)
    comparisons = [
        ArmComparison(arm=own.name, against=other.name, **vars(comparison))
        for own, other in (pair_sides(arms) if request.against else [])
        if (comparison := compare_arms(rounds, own.name, other.name, request.tolerance)) is not None
    ]
    return BenchResult(
        what_ran=line_of([row.ran for row in rows if not isinstance(row, FailedRow)]),
        method=METHOD,
        config=request.config,
        asked=request,
        rows=tuple(rows),
        compared=tuple(comparisons),
        facts=(*(request.notes or ()), *notes),
        rounds=tuple(rounds),
    )


def _write(run: RunDir, title: str, result: BenchResult) -> None:
    run.write_bench(encode(result), plain(markdown(title, result)))


def fail_if_nothing_measured(result: BenchResult, run: RunDir) -> None:
    """Raise when no arm has figures. When the machine refuses all arms, the run directory is removed."""
    failures = [row for row in result.rows if isinstance(row, FailedRow)]
    if len(failures) < len(result.rows):
        return
    first = failures[0]
    if all(row.status == "refused" for row in failures):
        shutil.rmtree(run.path)
        raise ConfigError(first.why or "refused")
    reason = f"{first.status}: {first.why}"
    run.write_status("failed", reason=reason)
    raise RunFailed(f"Nothing could be measured: {reason}")


def _run_summary(request: BenchRequest, result: BenchResult) -> Any:
    """For run.json. A single measured training is its `training`, as in a run, so that plans can be made from it."""
    summary = {"rows": encode(result.rows), "compared": encode(result.compared)}
    trainings = [row for row in result.measured if isinstance(row, StepRow)] if request.what == "train" else []
    if len(trainings) == 1:
        (row,) = trainings
        rates = {name: getattr(row, name).value for name in ("images_per_s_total", "images_per_s_per_device")}
        interval = (row.images_per_s_total.low, row.images_per_s_total.high)
        training = {**rates, "images_per_s_total_95": interval, "devices": row.devices, "method": row.method}
        summary["training"] = training
        summary["ran"] = encode(row.ran)
    return summary
