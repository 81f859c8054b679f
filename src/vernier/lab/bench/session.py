"""A benchmark from its request to its run directory: runs the configurations, pools them, and keeps every sample on
disk.

Each repeat runs in a fresh process, all configurations once per round, in random order: so a disturbance of the machine
affects all of them alike, and differences between processes are part of the figures. Which configurations there are is
decided in `configurations`.
"""

import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.clock import now_s, parse_stamp_s, wall_s
from vernier.config import config_from_tree, override, to_dict
from vernier.errors import ConfigError, Refusal, RunFailed
from vernier.frozen import frozen
from vernier.lab.launcher import run as run_process
from vernier.lab.records.bench import (
    BenchRequest,
    BenchResult,
    FailedRow,
    Failure,
    MeasuredResult,
    MeasuringProgress,
    Round,
    StepResult,
    StepRow,
    read_bench,
)
from vernier.measure.environment import installed_version
from vernier.records.codec import encode
from vernier.records.what_ran import line_of
from vernier.references import plain
from vernier.store import RunDir, find_runs
from vernier.version import describe_version
from vernier.wording import plural

from .configurations import Configuration, configurations_of
from .measuring import METHOD
from .progress import total_spent_s
from .rows import add_precision_speedup, add_scaling, pool_rounds
from .table import is_wide, markdown

if TYPE_CHECKING:
    from vernier.lab.report.progress import BenchDisplay

DEFAULT_REPEATS, MOST_REPEATS = 5, 10
"""Unless a number is requested: at most twice the time, since a process can take no longer than the others."""
_DAY_S = 86_400.0
OnProgress = Callable[[Configuration, MeasuringProgress | None], None]
"""Called about once per second with the configuration that runs, and what its process is doing; None: it has not
said."""


@frozen
class Outcome:
    """A benchmark that was run; `stopped` by Ctrl-C before its end."""

    run: RunDir
    result: BenchResult
    stopped: bool


def run_bench(request: BenchRequest, out: Path, display: "BenchDisplay") -> Outcome:
    """Measure every configuration. The run directory holds all samples from the first result on.

    A benchmark of the same request that was interrupted today is completed. Ctrl-C ends it early with what there is;
    before the first result nothing is left behind.
    """
    began_s = now_s()
    configurations, notes = configurations_of(request), list[str]()
    config = config_from_tree(request.config)
    name = f"bench-{'scaling' if request.scaling else request.what}-{config.recipe.name}"
    run = _find_interrupted(out, name, request) or RunDir.create(out, name)
    # Other commands must not clean up or resume the directory while it is written.
    with run.locked():
        run.tidy()
        measured = config_from_tree(configurations[0].request.config) if len(configurations) == 1 else config
        run.write_config(to_dict(override(measured, "name", name)))
        run.write_status("running")
        rounds = list(read_bench(run.path).rounds) if run.is_bench else []
        measured_s = [one.result.process_s for one in rounds if not isinstance(one.result, Failure)]
        if rounds:
            notes.append(f"completed after an interruption: the first {len(rounds)} processes were measured before it")
        stopped = False
        display.begin(request, [configuration.name for configuration in configurations], rounds)
        try:
            repeats = request.repeats
            while repeats:
                for newest in measure_configurations(
                    configurations, repeats=repeats, seed=request.seed, on_progress=display.update, done=rounds
                ):
                    rounds.append(newest)
                    if not isinstance(newest.result, Failure) and not run.read_environment():
                        run.write_environment(encode(newest.result.environment))
                    # After every process: a machine that dies in the last hour loses one result.
                    _write(run, name, _pool(request, configurations, rounds, notes))
                    display.finish(rounds)
                repeats = _one_repeat_more(request, _pool(request, configurations, rounds, notes))
                display.add(len(configurations) if repeats else 0)
        # A configuration that fails is a result of its own; these end the whole benchmark.
        except (KeyboardInterrupt, ConfigError, RunFailed) as error:
            total = len(configurations) * request.repeats
            notes.append(_explain_interruption(error, run, configurations, rounds, total))
            stopped = True
        if added := max(one.round for one in rounds) + 1 - request.repeats:
            notes.append(
                f"{plural(added, 'repeat')} added: the first {request.repeats} differ too much for a useful interval"
            )
        pooled = _pool(request, configurations, rounds, notes)
        # After the interruption, so that the time of an incomplete process counts as other.
        pooled = replace(pooled, spent_s=total_spent_s(rounds, sum(filter(None, measured_s)) + now_s() - began_s))
        _fail_if_nothing_measured(pooled, run)
        _write(run, name, pooled)
        run.write_status("stopped" if stopped else "finished", summary=_run_summary(request, pooled))
    return Outcome(run=run, result=pooled, stopped=stopped)


def _find_interrupted(out: Path, name: str, request: BenchRequest) -> RunDir | None:
    """The newest run of the same benchmark and version that was interrupted within a day; None if there is none.

    Not an older one: what a machine was like then is no part of a result of today.
    """
    for run in reversed(find_runs(out)):
        # By the name first: reading every run of a folder would take seconds.
        if name in run.path.name and run.status().status in ("crashed", "stopped"):
            began_s = parse_stamp_s(run.status().updated) or 0.0
            with suppress(OSError, ConfigError):
                # Killed before its first result, it has no record of the request, and no results either.
                same = _is_of(run, request) if run.is_bench else run.read_config().get("name") == name
                if same and wall_s() - began_s < _DAY_S:
                    return run
    return None


def _is_of(run: RunDir, request: BenchRequest) -> bool:
    """Whether a run is of this request, and was measured by this version of Vernier and PyTorch."""
    measured, versions = read_bench(run.path), run.read_environment().get("versions") or {}
    same = (versions.get("vernier"), versions.get("torch")) == (describe_version(), installed_version("torch"))
    return same and measured.method == METHOD and encode(measured.asked) == encode(request)


def _one_repeat_more(request: BenchRequest, result: BenchResult) -> int:
    """How many repeats to measure if an interval reaches too far to be of use; 0 if the time for more is over.

    All configurations, so that rounds stay whole.
    """
    measured = 1 + max(one.round for one in result.rounds)
    rates = [row.images_per_s_total for row in result.measured if isinstance(row, StepRow)]
    return measured + 1 if measured < (request.most_repeats or 0) and any(map(is_wide, rates)) else 0


def measure_configurations(
    configurations: Sequence[Configuration],
    *,
    repeats: int,
    seed: int,
    on_progress: OnProgress = lambda *_: None,
    done: Sequence[Round] = (),
) -> Iterator[Round]:
    """Run every configuration `repeats` times, and yield each result as soon as it is there, except those `done`."""
    generator, order = random.Random(seed), itertools.count(len(done))
    finished = {(one.configuration, one.round) for one in done}
    failures = {one.configuration: one.result for one in done if isinstance(one.result, Failure)}
    for number in range(repeats):
        # A new order each round: with a fixed one each configuration would always run after the same other one, which
        # leaves caches and heat behind.
        for configuration in generator.sample(list(configurations), len(configurations)):
            if (configuration.name, number) in finished:
                continue
            # What failed once fails again, after minutes of waiting each time.
            failure = failures.get(configuration.name) or _expected_failure(configuration, configurations, failures)
            result = failure or run_in_process(configuration, on_progress)
            if isinstance(result, Failure):
                failures[configuration.name] = result
            yield Round(configuration=configuration.name, round=number, order=next(order), result=result)


def _expected_failure(
    configuration: Configuration, configurations: Sequence[Configuration], failures: dict[str, Failure]
) -> Failure | None:
    """Out of memory, when a smaller batch of an otherwise equal configuration did not fit."""
    for other in configurations:
        batch = other.labels.batch
        full = other.name in failures and failures[other.name].status == "out-of-memory"
        if full and batch < configuration.labels.batch and replace(configuration.labels, batch=batch) == other.labels:
            return Failure(status="out-of-memory", why=f"not tried: batch {batch} did not fit either")
    return None


def run_in_process(configuration: Configuration, on_progress: OnProgress = lambda *_: None) -> MeasuredResult:
    """One configuration in a process of its own; a process that the kernel killed is an out-of-memory result."""
    ended = run_process(
        configuration.request,
        on_progress=lambda progress: on_progress(configuration, progress),
    )
    return ended.result(StepResult, configuration.name)


def _explain_interruption(
    error: KeyboardInterrupt | Refusal,
    run: RunDir,
    configurations: Sequence[Configuration],
    rounds: Sequence[Round],
    total: int,
) -> str:
    """After Ctrl-C, with some results, a note of what was left out. Raises for any other error, or without results."""
    if not rounds:
        # Nothing was measured: an empty directory would be listed among the runs.
        shutil.rmtree(run.path)
        raise error
    if not isinstance(error, KeyboardInterrupt):
        run.write_status("failed", reason=str(error))
        raise RunFailed(
            f"{error.message} The {len(rounds)} results before it, of {total}, are in {run.path}."
        ) from None
    missing = [a.name for a in configurations if a.name not in {r.configuration for r in rounds}]
    never = f"; never measured: {', '.join(missing)}" if missing else ""
    return f"INTERRUPTED after {len(rounds)} of {total} processes{never}"


def _pool(
    request: BenchRequest, configurations: Sequence[Configuration], rounds: Sequence[Round], notes: Sequence[str]
) -> BenchResult:
    measured = {r.configuration for r in rounds}
    rows = [pool_rounds(a.name, a.labels, rounds) for a in configurations if a.name in measured]
    rows = add_scaling(rows, rounds, request.scaling) if request.scaling else rows
    rows = add_precision_speedup(rows, rounds)
    return BenchResult(
        what_ran=line_of([row.ran for row in rows if not isinstance(row, FailedRow)]),
        method=METHOD,
        config=request.config,
        asked=request,
        rows=tuple(rows),
        facts=(*(request.notes or ()), *notes),
        rounds=tuple(rounds),
    )


def _write(run: RunDir, title: str, result: BenchResult) -> None:
    run.write_bench(encode(result), plain(markdown(title, result)))


def _fail_if_nothing_measured(result: BenchResult, run: RunDir) -> None:
    """Raise when no configuration has figures. When the machine refuses all configurations, the run directory is
    removed."""
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
    summary = {"rows": encode(result.rows)}
    # Only a single one: a plan made from a benchmark of several could not tell which is meant.
    trainings = [row for row in result.measured if isinstance(row, StepRow)] if request.what == "train" else []
    if len(trainings) == 1:
        (row,) = trainings
        rates = {name: getattr(row, name).value for name in ("images_per_s_total", "images_per_s_per_device")}
        interval = (row.images_per_s_total.low, row.images_per_s_total.high)
        training = {**rates, "images_per_s_total_95": interval, "devices": row.devices, "method": row.method}
        summary["training"] = training
        summary["ran"] = encode(row.ran)
    return summary
