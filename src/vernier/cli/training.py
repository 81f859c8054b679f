"""Output of `vernier train`."""

import sys

from vernier.api.training import Ended, explain_request, train_request, write_logs
from vernier.engine.processes.launch import topology
from vernier.errors import EXIT_DONE
from vernier.records.codec import encode
from vernier.requests.training import Train

from .output import Terminal


def train(request: Train, terminal: Terminal) -> int:
    if request.explain:
        terminal.print_result(explain_request(request, terminal), request.json, lambda explained: explained.lines())
        return EXIT_DONE
    ended = train_request(request, terminal)
    if topology().first:
        _print_ended(ended, request.json, terminal)
        write_logs(request, ended, terminal)
    return ended.code


def _print_ended(ended: Ended, json: bool, terminal: Terminal) -> None:
    """The result of a run in this process; processes that were started have printed theirs."""
    from vernier.report.live.console import closing_lines
    from vernier.report.live.terminal import discard_results

    path, summary = ended.run, ended.summary
    if summary is None:
        return
    result = {"run": path, "status": ended.status, **encode(summary)}
    try:
        terminal.print_result(result, json, lambda _: closing_lines(summary, str(path), ended.status))
        # Here, where a full disk can still be reported; Python would flush when it ends.
        sys.stdout.flush()
    except OSError as error:  # the run is what it is, and its exit code says so
        discard_results()
        terminal.warn(f"vernier: the result could not be printed ({error.strerror}); run.json in {path} has it")
