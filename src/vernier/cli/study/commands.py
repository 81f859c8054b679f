"""`vernier study analyze`, `baseline`, `check` and `merge`, one function per command.

`run` is in `cli.study.run`, `simulate` and `design` are in `cli.study.practice`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, Switch
from vernier.cli.output import print_result, print_rows
from vernier.config import parse_share
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError

from .practice import design, simulate
from .run import run
from .sources import Columns, Units, read_sources

Sources = Annotated[Positional[tuple[str, ...]], arg(metavar="CSV|DIR...", help_behavior_hint="(required)")]
Out = Annotated[str, arg(metavar="PATH", aliases=["-o"])]
Matter = Annotated[str, arg(metavar="SHARE")]
Drop = Annotated[Switch, arg(help="Drop rows that are exact copies of others.")]
SHOWN = 20


def analyze(
    sources: Sources,
    /,
    *,
    columns: Columns = None,
    units: Units = None,
    drop_duplicates: Drop = False,
    matter: Matter = "1%",
    all_devices: Switch = False,
    json: JsonFlag = False,
) -> int:
    """Find slow devices: how much devices differ, which ones are slow, and whether it is the device or noise.

    Reads study directories, the SC22 study's CSVs, nvprof traces, DLLogger lines, raport.json, MLPerf logs, and any
    other CSV with --columns.

    Args:
        sources: Files or directories to read; several are analysed together.
        columns: The columns of a CSV: step_time, device, repeat, freq, power, temp, workload. For a rate such as img/s
            write speed instead of step_time.
        units: The unit of the step time, if the file does not state it: ms (s, us, ns, min), img/s. With the units of
            sensors: step_time=ms,power=mW,freq=GHz.
        matter: A device that is slower by less than this is not recommended for removal, however certain it is: 1% or
            0.01.
        all_devices: List every device, not only the 20 slowest.

    Examples:
        vernier study analyze runs/STUDY
        vernier study analyze fleet.csv --columns step_time=time_ms,device=serial
    """
    from vernier.measure.study.analysis import analyze as analyze_table
    from vernier.report.study.text import study_lines, study_rows

    share = parse_share("--matter", matter, allow_zero=True)
    analysis = analyze_table(read_sources(sources, columns, units, drop_duplicates), share)
    print_result(analysis, json, study_lines)
    if not json:
        print_rows(
            study_rows(analysis, None if all_devices else SHOWN),
            False,
            droppable=("beyond fence", "chance it is normal", "repeats"),
        )
    return EXIT_DONE


def baseline(
    sources: Sources,
    /,
    *,
    out: Out,
    columns: Columns = None,
    units: Units = None,
    json: JsonFlag = False,
) -> int:
    """Learn how the normal devices of a fleet behave, for `vernier study check`.

    Args:
        sources: Studies of the fleet.
        out: File to write; an existing one is replaced.
        columns: As in `study analyze`.
        units: As in `study analyze`.

    Examples:
        vernier study baseline runs/fleet -o baseline.json
        vernier study baseline fleet.csv --columns step_time=time_ms,device=serial -o baseline.json
    """
    from vernier.measure.study.baseline import learn, write_baseline

    learned = learn(read_sources(sources, columns, units))
    write_baseline(Path(out).expanduser(), learned)
    line = (
        f"{out}: {learned.devices} devices, {learned.runs} runs; "
        f"normal devices differ by {100 * learned.speed.sd:.2f} % (sd), repeats by {100 * learned.noise_sd:.2f} %; "
        f"left out as slow: {', '.join(learned.set_aside) or 'none'}"
    )
    print_result(learned, json, lambda _: [line])
    return EXIT_DONE


def check(
    sources: Sources,
    /,
    *,
    baseline: Annotated[str, arg(metavar="FILE")],
    columns: Columns = None,
    units: Units = None,
    matter: Matter = "1%",
    json: JsonFlag = False,
) -> int:
    """Accept or reject a new or repaired machine: exit code 1, with the reason, if a device is slower than the fleet.

    Args:
        sources: A study of the machine, of the same workload.
        baseline: File written by `vernier study baseline`.
        columns: As in `study analyze`.
        units: As in `study analyze`.
        matter: A device that is slower than the fleet by less than this is accepted, however certain it is: 1% or 0.01.

    Examples:
        vernier study check runs/new-node --baseline baseline.json
        vernier study check runs/new-node --baseline baseline.json --json
    """
    from vernier.measure.study.baseline import check as check_table
    from vernier.measure.study.baseline import read_baseline
    from vernier.report.study.text import check_lines

    share = parse_share("--matter", matter, allow_zero=True)
    result = check_table(read_baseline(Path(baseline).expanduser()), read_sources(sources, columns, units), share)
    print_result(result, json, check_lines)
    return EXIT_DONE if result.accepted else EXIT_FAILED


def merge(
    sources: Annotated[Positional[tuple[str, ...]], arg(metavar="DIR...", help_behavior_hint="(required)")],
    /,
    *,
    out: Out,
    json: JsonFlag = False,
) -> int:
    """Join the studies of several machines into one; the sources are not changed.

    Args:
        sources: Study directories of the same workload.
        out: Directory to create.

    Examples:
        vernier study merge runs/node1 runs/node2 -o runs/fleet
        vernier study merge studies/* -o runs/fleet
    """
    from vernier.measure.study.files import merge as merge_studies

    if not sources:
        raise ConfigError("Name the studies to merge: vernier study merge DIR... -o DIR.")
    merged = merge_studies([Path(s).expanduser() for s in sources], Path(out).expanduser())
    result = {"path": merged.path, "devices": len(merged.meta().devices), "repeats": len(merged.repeats())}
    print_result(result, json, lambda _: ["{path}: {devices} devices, {repeats} repeats".format(**result)])
    return EXIT_DONE


COMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "analyze": analyze,
    "baseline": baseline,
    "check": check,
    "merge": merge,
    "simulate": simulate,
    "design": design,
}
