"""`vernier tune` and `vernier profile`: what they print."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_INTERRUPTED
from vernier.lab.api.profiling import profile_steps
from vernier.lab.api.tuning import search_settings
from vernier.lab.requests.profiling import Profiled
from vernier.lab.requests.tuning import Tune
from vernier.lab.tuning.results import closing_lines, table
from vernier.records.codec import encode
from vernier.records.what_ran import line_of


def tune(request: Tune, terminal: Terminal) -> int:
    result = search_settings(request, terminal)
    if request.json:
        terminal.print_json(result)
    else:
        if result.settings:
            terminal.show(result.what_ran)
            terminal.print_rows(table(result.settings))
        terminal.show(*closing_lines(result))
    if result.stopped:
        terminal.warn("vernier: interrupted, and nothing was written")
        return EXIT_INTERRUPTED
    return EXIT_DONE


def profile(request: Profiled, terminal: Terminal) -> int:
    """What ran, the longest kernels, where the time goes, and where the files are."""
    result = profile_steps(request, terminal)
    summary = result.summary
    if request.json:
        terminal.print_json({"run": result.path, **encode(summary), "notes": result.notes})
        return EXIT_DONE
    figures = ("total_ms", "mean_ms", "share")
    terminal.show(line_of([summary.ran]))
    terminal.print_rows(
        [
            {"name": kernel.name, "device": kernel.device, "calls": kernel.calls}
            | {name: round(getattr(kernel, name), 4) for name in figures}
            for kernel in summary.top
        ]
    )
    files = f"run        {result.path}  (traces/: {', '.join(summary.files)})"
    terminal.show(*summary.lines(), *result.notes, files)
    return EXIT_DONE
