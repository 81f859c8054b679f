"""`vernier convert`: the flags; reading and writing logs is `vernier.report.logs`."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag
from vernier.cli.output import print_json, say, show
from vernier.errors import EXIT_DONE

Form = Literal["raport", "dllogger", "mllog", "study", "tensorboard"]


def convert(
    run: Annotated[Positional[str], arg(metavar="RUN|FILE")],
    /,
    *,
    to: Form,
    out: Annotated[str, arg(metavar="PATH", aliases=["-o"])],
    json: JsonFlag = False,
) -> int:
    """Convert a run's log to the format of another tool; nothing is overwritten.

    Args:
        run: A run directory, a benchmark (RUN, or RUN#ARM for one of several arms), a raport.json, DLLogger lines, an
            MLPerf log, or the console output of a training script.
        to: Format to write: raport (NVIDIA, 2019), dllogger (NVIDIA, since 2020), mllog (MLPerf), study (files of the
            SC22 variability study), tensorboard.
        out: File to write; for study and tensorboard a directory. Several arms get one each, named after the arm.

    Examples:
        vernier convert runs/RUN --to mllog --out result_0.txt
        vernier convert raport.json --to dllogger --out dllogger.json
        vernier convert 'runs/BENCH#batch=32' --to raport --out benchmark.json
    """
    from vernier.report.logs.reading import open_to_convert
    from vernier.report.logs.writing import convert_all

    logs = open_to_convert(run)
    written = [str(p) for p in convert_all(logs, to, Path(out).expanduser())]
    notes = list(dict.fromkeys(n for log in logs.values() for n in log.notes))
    if json:
        print_json({"format": to, "written": written, "notes": notes})
    else:
        show(*map(str, written))
        say(*(f"note: {n}" for n in notes))
    return EXIT_DONE
