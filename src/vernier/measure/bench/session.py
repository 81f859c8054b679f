"""A benchmark from its request to its run directory: runs the arms, pools them, and keeps every sample on disk."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vernier.config import config_from_tree, override, to_dict
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.records.bench import ArmComparison, ArmFailure, BenchRequest, BenchResult, FailedRow, Round, StepRow
from vernier.records.codec import encode
from vernier.store import RunDir

from .arms import Arm, run_arms
from .combinations import both_sides, pair_sides
from .measuring import METHOD
from .rows import add_scaling, compare_arms, pool_rounds
from .table import describe_comparison, markdown, note_shared_labels

Progress = Callable[[int, int, int], None]
"""Called with the number of processes that are done, of all processes, and of rounds."""


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


def run_bench(request: BenchRequest, out: Path, progress: Progress) -> Outcome:
    """Measure every arm. The run directory holds all samples from the first result on.

    Ctrl-C ends it early with what there is; before the first result nothing is left behind.
    """
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
            progress(0, total, request.repeats)
            try:
                for newest in run_arms(arms, repeats=request.repeats, seed=request.seed):
                    rounds.append(newest)
                    result = newest.result
                    if newest.arm in own_arms and not isinstance(result, ArmFailure) and not run.read_environment():
                        run.write_environment(encode(result.environment))
                    _write(run, name, _pool(request, arms, rounds, sides.notes))
                    progress(len(rounds), total, request.repeats)
            except (KeyboardInterrupt, ConfigError, RunFailed) as error:
                interruption = [_explain_interruption(error, run, arms, rounds, total)]
            pooled = _pool(request, arms, rounds, [*sides.notes, *interruption])
            fail_if_nothing_measured(pooled, run)
            _write(run, name, pooled)
            run.write_status("stopped" if interruption else "finished", summary=_run_summary(request, pooled))
    return Outcome(run=run, result=pooled, stopped=bool(interruption))


def _explain_interruption(
    error: BaseException, run: RunDir, arms: Sequence[Arm], rounds: Sequence[Round], total: int
) -> str:
    """After Ctrl-C, with some results, a note of what was left out. Raises for any other error, or without results."""
    if not rounds:
        shutil.rmtree(run.path)
        raise error
    if not isinstance(error, KeyboardInterrupt):
        run.write_status("failed", reason=str(error))
        raise RunFailed(f"{error} The {len(rounds)} results before it, of {total}, are in {run.path}.") from None
    missing = [a.name for a in arms if a.name not in {r.arm for r in rounds}]
    never = f"; never measured: {', '.join(missing)}" if missing else ""
    return f"INTERRUPTED after {len(rounds)} of {total} processes{never}"


def _pool(request: BenchRequest, arms: Sequence[Arm], rounds: Sequence[Round], notes: Sequence[str]) -> BenchResult:
    measured = {r.arm for r in rounds}
    rows = [pool_rounds(a.name, a.labels, rounds) for a in arms if a.name in measured]
    if request.scaling:
        rows = add_scaling(rows, rounds, request.scaling)
    comparisons = [
        ArmComparison(arm=own.name, against=other.name, **vars(comparison))
        for own, other in (pair_sides(arms) if request.against else [])
        if (comparison := compare_arms(rounds, own.name, other.name, request.tolerance)) is not None
    ]
    return BenchResult(
        method=METHOD,
        config=request.config,
        asked=request,
        rows=tuple(rows),
        compared=tuple(comparisons),
        facts=(*notes, *note_shared_labels(rows)),
        rounds=tuple(rounds),
    )


def _write(run: RunDir, title: str, result: BenchResult) -> None:
    facts = [*result.facts, *map(describe_comparison, result.compared)]
    run.write_bench(encode(result), markdown(title, result.rows, facts))


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
        summary["training"] = {**rates, "devices": row.devices, "method": row.method}
    return summary
