"""`vernier report` and `convert`: what they print."""

import sys
from pathlib import Path

from vernier.api.reports import convert_log, write_report
from vernier.errors import EXIT_DONE
from vernier.requests.reports import Convert, Report
from vernier.wording import plural

from .output import Terminal


def convert(request: Convert, terminal: Terminal) -> int:
    converted = convert_log(request)
    if request.json:
        terminal.print_json(converted)
    else:
        terminal.show(*map(str, converted.written))
        terminal.warn(*(f"note: {note}" for note in converted.notes))
    return EXIT_DONE


def report(request: Report, terminal: Terminal) -> int:
    if request.watch:
        return _serve(request, terminal)
    from vernier.records.codec import encode
    from vernier.report.page.logs import times_to_train

    written = write_report(request)
    sections, omitted = written.page.sections, written.left_out
    size, times = written.path.stat().st_size, times_to_train(written.subjects)
    if not request.json:
        if omitted:
            count = plural(len(omitted), "smoke run")
            terminal.warn(f"omitted: {count}, whose results mean nothing; name one to see it")
        terminal.show(*times)
        terminal.show(f"{written.path}: {size / 1000:,.0f} kB; {', '.join(s.title for s in sections)}")
        return EXIT_DONE
    names = ("name", "path", "kind", "format", "status", "smoke", "ran")
    runs = [{name: encode(getattr(subject, name)) for name in names} for subject in written.subjects]
    result = {"page": written.path, "bytes": size, "sections": [s.name for s in sections], "runs": runs}
    scores = {"times_to_train": times} if times else {}
    terminal.print_json({**result, "smoke_left_out": omitted, **scores})
    return EXIT_DONE


def _serve(request: Report, terminal: Terminal) -> int:
    from vernier.api.reports import check_live
    from vernier.report.page.serve import Live, Server

    check_live(request)
    live = Live([Path(run) for run in request.runs])
    live.now()  # so that unreadable files are reported before anything is served
    with Server(live, request.port or 0) as server:
        terminal.print_json({"url": server.url}) if request.json else terminal.show(server.url)
        sys.stdout.flush()
        terminal.warn("Ctrl-C ends the live report; the runs continue.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            terminal.warn("live report ended")
    return EXIT_DONE
