"""`vernier convert`."""

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
    """Write a run's log in the form another tool reads; nothing is overwritten.

    Args:
        run: A run directory, or a raport.json, DLLogger lines or an MLPerf log to convert between them.
        to: raport: NVIDIA's of 2019; dllogger: NVIDIA's since 2020; mllog: MLPerf's; study: the SC22 study's files; tensorboard.
        out: The file to write; for study and tensorboard the directory.
    """
    from vernier.report.logs.reading import open_logs
    from vernier.report.logs.writing import convert as write

    found = open_logs(Path(run).expanduser())
    if len(found) != 1:
        raise ConfigError(f"{run} holds {len(found)} runs: give one of them.")
    written = [str(p) for p in write(found[0], to, Path(out).expanduser())]
    if json:
        print_json({"format": to, "written": written, "notes": list(found[0].notes)})
    else:
        sys.stdout.write("".join(f"{p}\n" for p in written))
        sys.stderr.write("".join(f"note: {n}\n" for n in found[0].notes))
    return EXIT_DONE
