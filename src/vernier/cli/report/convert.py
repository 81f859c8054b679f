"""`vernier convert`: the flags; reading and writing logs is `vernier.report.logs`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag
from vernier.cli.output import print_json
from vernier.errors import EXIT_DONE, ConfigError

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
        run: A run directory, a raport.json, DLLogger lines or an MLPerf log.
        to: Format to write: raport (NVIDIA, 2019), dllogger (NVIDIA, since 2020), mllog (MLPerf), study (files of the
            SC22 variability study), tensorboard.
        out: File to write; for study and tensorboard a directory.

    Examples:
        vernier convert runs/RUN --to mllog --out result_0.txt
        vernier convert raport.json --to dllogger --out dllogger.json
    """
    from vernier.report.logs.reading import open_logs
    from vernier.report.logs.writing import convert as write

    logs = open_logs(Path(run).expanduser())
    if len(logs) != 1:
        raise ConfigError(f"{run} holds {len(logs)} runs. Give one of them.")
    written = [str(p) for p in write(logs[0], to, Path(out).expanduser())]
    if json:
        print_json({"format": to, "written": written, "notes": list(logs[0].notes)})
    else:
        sys.stdout.write("".join(f"{p}\n" for p in written))
        sys.stderr.write("".join(f"note: {n}\n" for n in logs[0].notes))
    return EXIT_DONE
