"""`vernier report`: the flags; the page is `vernier.report.page`."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, Switch, optional
from vernier.cli.output import print_json, say
from vernier.errors import EXIT_DONE, ConfigError

Runs = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...", help_behavior_hint="(required)")]


def report(
    runs: Runs,
    /,
    *,
    out: Annotated[str | None, arg(metavar="FILE", aliases=["-o"], help_behavior_hint="")] = None,
    watch: Switch = False,
    port: Annotated[int | None, optional("N")] = None,
    json: JsonFlag = False,
) -> int:
    """Make one self-contained HTML page about runs, which needs no network and can be sent to others.

    Reads run directories (also running and crashed ones, benchmarks, profiles), studies and their CSV files, NVIDIA's
    raport.json and DLLogger lines, MLPerf logs (with their time to train), and the console output of torchvision's,
    Habana's and TensorFlow's training scripts. Several runs share the charts, and their differences are marked.

    Args:
        runs: Runs, studies or logs; a folder of runs means all of them but smoke runs.
        out: File to write. Default: report.html in the run directory, or in this folder when several are given.
        watch: Serve the page on this machine instead, and update it while the runs continue. Ctrl-C ends it.
        port: Port for --watch. Default: a free one.

    Examples:
        vernier report runs/RUN
        vernier report runs/before runs/after --out page.html
        vernier report runs/RUN --watch
    """
    paths = [Path(r).expanduser() for r in runs]
    if not paths:
        raise ConfigError("No runs given. Use vernier report RUN..., with run directories, studies or logs.")
    if watch:
        if out is not None:
            raise ConfigError("--watch serves the page and --out writes it to a file. Leave out one of them.")
        return _serve(paths, port or 0, json)
    if port is not None:
        raise ConfigError("--port needs --watch.")
    return _write(paths, _target(paths, out), json)


def _target(paths: list[Path], out: str | None) -> Path:
    if out is not None:
        path = Path(out).expanduser()
        return path / "report.html" if path.is_dir() else path
    return (paths[0] if len(paths) == 1 and paths[0].is_dir() else Path()) / "report.html"


def _write(paths: list[Path], target: Path, json: bool) -> int:
    from vernier.records.codec import encode
    from vernier.report.page.build import build
    from vernier.report.page.collect import collect, smoke_runs, times_to_train
    from vernier.store import write_atomically
    from vernier.wording import plural

    subjects = collect(paths, target.resolve().parent)
    left_out = smoke_runs(paths)
    page = build(subjects, left_out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page.html())
    except OSError as error:
        raise ConfigError(f"Cannot write {target}: {error.strerror}. Choose another --out.") from None
    size = target.stat().st_size
    if json:
        runs = [
            {
                "name": s.name,
                "path": str(s.path),
                "kind": s.kind,
                "format": s.format,
                "status": s.status,
                "smoke": s.smoke,
                "ran": encode(s.ran),
            }
            for s in subjects
        ]
        sections, smoke = [s.name for s in page.sections], [str(path) for path in left_out]
        scores = {"times_to_train": lines} if (lines := times_to_train(subjects)) else {}
        result = {"page": str(target), "bytes": size, "sections": sections, "runs": runs, "smoke_left_out": smoke}
        print_json({**result, **scores})
    else:
        if left_out:
            say(f"left out: {plural(len(left_out), 'smoke run')}, whose figures mean nothing; name one to see it")
        sys.stdout.write("".join(f"{line}\n" for line in times_to_train(subjects)))
        names = ", ".join(s.title for s in page.sections)
        sys.stdout.write(f"{target}: {size / 1000:,.0f} kB; {names}\n")
    return EXIT_DONE


def _serve(paths: list[Path], port: int, json: bool) -> int:
    from vernier.report.page.serve import Live, Server

    live = Live(paths)
    live.now()  # so that unreadable files are reported before anything is served
    with Server(live, port) as server:
        print_json({"url": server.url}) if json else sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        say("Ctrl-C ends the live view; the runs continue.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("live view ended")
    return EXIT_DONE
