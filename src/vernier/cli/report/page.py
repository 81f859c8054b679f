"""`vernier report`."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from vernier.cli.flags import JsonFlag, optional
from vernier.cli.output import print_json, say
from vernier.errors import EXIT_DONE, ConfigError

Runs = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]


def report(
    runs: Runs,
    /,
    *,
    out: Annotated[str | None, arg(metavar="FILE", aliases=["-o"], help_behavior_hint="")] = None,
    watch: FlagCreatePairsOff[bool] = False,
    port: Annotated[int | None, optional("N")] = None,
    json: JsonFlag = False,
) -> int:
    """Make one self-contained page about runs: it opens anywhere, offline, and can be sent to others.

    Reads run directories (also running and crashed ones, benchmarks, profiles), studies and their CSV files, NVIDIA's raport.json and
    DLLogger lines, MLPerf logs. Several runs are laid over one another, and what differs between them is marked.

    Args:
        runs: What to report on; a folder of runs stands for all of them.
        out: The file to write; by default report.html in the run directory, or here when several are given.
        watch: Serve the page on this machine instead, and keep it up to date while runs go on. Ctrl-C ends it.
        port: Where to serve it; by default a free one.
    """
    paths = [Path(r).expanduser() for r in runs]
    if not paths:
        raise ConfigError("Which runs? vernier report RUN... takes run directories, studies and logs.")
    if watch:
        if out is not None:
            raise ConfigError("--watch serves the page and writes none: leave out --out, or leave out --watch.")
        return _serve(paths, port or 0, json)
    if port is not None:
        raise ConfigError("--port is for --watch.")
    return _write(paths, _target(paths, out), json)


def _target(paths: list[Path], out: str | None) -> Path:
    if out is not None:
        path = Path(out).expanduser()
        return path / "report.html" if path.is_dir() else path
    return (paths[0] if len(paths) == 1 and paths[0].is_dir() else Path()) / "report.html"


def _write(paths: list[Path], target: Path, json: bool) -> int:
    from vernier.report.page.build import build
    from vernier.report.page.collect import collect
    from vernier.store import write_atomically

    subjects = collect(paths, target.resolve().parent)
    page = build(subjects)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page.html())
    except OSError as error:
        raise ConfigError(f"Cannot write {target}: {error.strerror}. Choose another --out.") from None
    size = target.stat().st_size
    if json:
        runs = [
            {"name": s.name, "path": str(s.path), "kind": s.kind, "format": s.format, "status": s.status}
            for s in subjects
        ]
        print_json({"page": str(target), "bytes": size, "sections": [s.name for s in page.sections], "runs": runs})
    else:
        names = ", ".join(s.title for s in page.sections)
        sys.stdout.write(f"{target}: {size / 1000:,.0f} kB; {names}\n")
    return EXIT_DONE


def _serve(paths: list[Path], port: int, json: bool) -> int:
    from vernier.report.page.serve import Live, Server

    live = Live(paths)
    live.now()  # what cannot be read is said before anything is served
    with Server(live, port) as server:
        print_json({"url": server.url}) if json else sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        say("Ctrl-C ends the live view; the runs go on.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("live view ended")
    return EXIT_DONE
