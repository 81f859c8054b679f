"""Output of `vernier report`."""

from vernier.api.reports import write_report
from vernier.errors import EXIT_DONE
from vernier.requests.reports import Report
from vernier.wording import plural

from .output import Terminal


def report(request: Report, terminal: Terminal) -> int:
    from vernier.records.codec import encode
    from vernier.report.page.subjects import kinds

    written = write_report(request)
    sections, omitted = written.page.sections, written.left_out
    size = written.path.stat().st_size
    times = [line for kind in kinds() for line in kind.scores(written.subjects)]
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
