"""`vernier report`: the flags; the page is `vernier.report.page`."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, Switch, optional
from vernier.cli.output import print_json, say, show
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
    return _write(paths, None if out is None else Path(out).expanduser(), json)


def _write(paths: list[Path], out: Path | None, json: bool) -> int:
    from vernier.records.codec import encode
    from vernier.report.page.collect import times_to_train
    from vernier.report.page.writing import write_page
    from vernier.wording import plural

    written = write_page(paths, out)
    target, sections, left_out = written.path, written.page.sections, written.left_out
    size, times = target.stat().st_size, times_to_train(written.subjects)
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
            for s in written.subjects
        ]
        names, smoke = [s.name for s in sections], [str(path) for path in left_out]
        scores = {"times_to_train": times} if times else {}
        result = {"page": str(target), "bytes": size, "sections": names, "runs": runs, "smoke_left_out": smoke}
        print_json({**result, **scores})
    else:
        if left_out:
            say(f"left out: {plural(len(left_out), 'smoke run')}, whose figures mean nothing; name one to see it")
        show(*times)
        show(f"{target}: {size / 1000:,.0f} kB; {', '.join(s.title for s in sections)}")
    return EXIT_DONE


def _serve(paths: list[Path], port: int, json: bool) -> int:
    from vernier.report.page.serve import Live, Server

    live = Live(paths)
    live.now()  # so that unreadable files are reported before anything is served
    with Server(live, port) as server:
        print_json({"url": server.url}) if json else show(server.url)
        sys.stdout.flush()
        say("Ctrl-C ends the live view; the runs continue.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("live view ended")
    return EXIT_DONE
