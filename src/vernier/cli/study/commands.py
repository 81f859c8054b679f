"""`vernier study ...`: one function an action."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from vernier.cli.flags import JsonFlag, optional
from vernier.cli.output import print_json, print_rows
from vernier.cli.study.run import run
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError

Sources = Annotated[Positional[tuple[str, ...]], arg(metavar="CSV|DIR...")]
Out = Annotated[str, arg(metavar="PATH", aliases=["-o"])]
Columns = Annotated[str | None, optional("perf=NAME,device=NAME,...")]
Units = Annotated[str | None, optional("perf=UNIT,power=UNIT,...")]
Drop = Annotated[FlagCreatePairsOff[bool], arg(help="Leave out rows that are exact copies of others.")]
SHOWN = 20


def _table(sources: tuple[str, ...], columns: str | None, units: str | None, drop_duplicates: bool = False) -> Any:
    from vernier.report.study.tables import FIELDS, SENSOR_UNITS, Asked, parse_pairs, read_table

    if not sources:
        raise ConfigError("Say what to read: study directories, CSV files, logs, or folders of them.")
    asked = Asked(
        columns=parse_pairs(columns, "--columns", FIELDS),
        units=parse_pairs(units, "--units", ("perf", *SENSOR_UNITS)),
        drop_duplicates=drop_duplicates,
    )
    return read_table([Path(s).expanduser() for s in sources], asked)


def analyze(
    sources: Sources,
    /,
    *,
    columns: Columns = None,
    units: Units = None,
    drop_duplicates: Drop = False,
    all_devices: bool = False,
    json: JsonFlag = False,
) -> int:
    """Tell whether devices are equal: which is slow, by how much, and whether it is the device or the noise.

    Reads study directories, the SC22 study's CSVs, nvprof traces, DLLogger lines, raport.json, MLPerf logs, and any other CSV
    with --columns.

    Args:
        sources: What to read; several are taken together.
        columns: Which columns of a CSV hold what: perf, device, repeat, freq, power, temp, workload.
        units: Their units, where the file does not say: perf=ms (s, us, ns, min, img/s ...), power=mW, freq=GHz.
        all_devices: List every device, not only the slowest.
    """
    from vernier.measure.study.analysis import analyze as study
    from vernier.report.study.text import study_lines, study_rows

    found = study(_table(sources, columns, units, drop_duplicates))
    if json:
        print_json(found)
        return EXIT_DONE
    sys.stdout.write("\n".join(study_lines(found)) + "\n")
    print_rows(study_rows(found, None if all_devices else SHOWN), False)
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
    """Learn how a fleet ordinarily behaves, from its own data, for `study check`.

    Args:
        sources: Studies of the fleet.
        out: The file to write; an existing one is replaced whole.
        columns: As in `study analyze`.
        units: As in `study analyze`.
    """
    from vernier.measure.study.baseline import learn
    from vernier.store import write_json

    made = learn(_table(sources, columns, units))
    try:
        write_json(Path(out).expanduser(), made.as_dict())
    except OSError as error:
        raise ConfigError(f"Cannot write {out}: {error.strerror}.") from None
    if json:
        print_json(made.as_dict())
        return EXIT_DONE
    sys.stdout.write(
        f"{out}: {made.devices} devices, {made.runs} runs; ordinary devices differ by {100 * made.speed.sd:.2f} % (sd), repeats by "
        f"{100 * made.noise_sd:.2f} %; set aside as slow: {', '.join(made.set_aside) or 'none'}\n"
    )
    return EXIT_DONE


def check(
    sources: Sources,
    /,
    *,
    baseline: Annotated[str, arg(metavar="FILE")],
    columns: Columns = None,
    units: Units = None,
    json: JsonFlag = False,
) -> int:
    """Accept or reject a new or repaired machine: exit code 1, with the reason, when a device does not belong to the fleet.

    Args:
        sources: A study of the machine, of the same workload.
        baseline: What `study baseline` wrote.
        columns: As in `study analyze`.
        units: As in `study analyze`.
    """
    from vernier.measure.study.baseline import Baseline
    from vernier.measure.study.baseline import check as judge
    from vernier.report.study.text import check_lines
    from vernier.store import read_json

    try:
        learned = Baseline.from_dict(read_json(Path(baseline).expanduser()))
    except OSError as error:
        raise ConfigError(f"Cannot read the baseline {baseline}: {error.strerror}.") from None
    except ValueError as error:
        why = str(error) if isinstance(error, ConfigError) else f"it is no JSON ({error})."
        raise ConfigError(f"Cannot use the baseline {baseline}: {why}") from None
    found = judge(learned, _table(sources, columns, units))
    print_json(found) if json else sys.stdout.write("\n".join(check_lines(found)) + "\n")
    return EXIT_DONE if found["accepted"] else EXIT_FAILED


def merge(
    sources: Annotated[Positional[tuple[str, ...]], arg(metavar="DIR...")],
    /,
    *,
    out: Out,
    json: JsonFlag = False,
) -> int:
    """Join the studies of several machines into one; the sources stay as they are.

    Args:
        sources: Study directories of the same workload.
        out: The directory to make.
    """
    from vernier.measure.study.files import merge as join

    if not sources:
        raise ConfigError("Say which studies to join: vernier study merge DIR... -o DIR.")
    made = join([Path(s).expanduser() for s in sources], Path(out).expanduser())
    count = {"path": str(made.path), "devices": len(made.meta().devices), "repeats": len(made.repeats())}
    print_json(count) if json else sys.stdout.write(
        f"{made.path}: {count['devices']} devices, {count['repeats']} repeats\n"
    )
    return EXIT_DONE


COMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "analyze": analyze,
    "baseline": baseline,
    "check": check,
    "merge": merge,
}
