"""`vernier train` and `finetune`: what they print."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vernier.api.finetuning import explain_finetuning, finetune_request
from vernier.api.training import Ended, explain_request, train_request, write_logs
from vernier.engine.processes.launch import topology
from vernier.errors import EXIT_DONE
from vernier.records.codec import encode
from vernier.references import command
from vernier.requests.training import Finetune, Train
from vernier.store import RunDir

from .output import Terminal

if TYPE_CHECKING:
    from vernier.api.finetuning import FinetuningExplanation, FinishedRun


def train(request: Train, terminal: Terminal) -> int:
    if request.explain:
        from vernier.measure.explain import describe_explanation

        terminal.print_result(explain_request(request, terminal), request.json, describe_explanation)
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
        sys.stdout.flush()
    except OSError as error:  # the run is what it is, and its exit code says so
        discard_results()
        terminal.warn(f"vernier: the result could not be printed ({error.strerror}); run.json in {path} has it")


def finetune(request: Finetune, terminal: Terminal) -> int:
    if request.explain:
        terminal.print_result(explain_finetuning(request, terminal), request.json, _explanation_lines)
        return EXIT_DONE
    done = finetune_request(request, terminal)
    if done.finished is not None:
        _print_finished(done.finished, request.json, terminal)
    return done.ended.code


def _explanation_lines(explained: "FinetuningExplanation") -> list[str]:
    warnings = (f"  warning        {warning}" for warning in explained.warnings)
    return [*explained.plan.lines(explained.time), *warnings]


def _print_finished(finished: "FinishedRun", json: bool, terminal: Terminal) -> None:
    from vernier.report.live.console import closing_lines

    path = finished.record["run"]
    status = RunDir.open(path).status()
    if json:
        terminal.print_json({**finished.record, "status": status.status})
        return
    if status.summary is not None:
        terminal.show(*closing_lines(status.summary, str(path), "finished")[:-1], "")
    terminal.show(*_finished_lines(finished))


def _finished_lines(finished: "FinishedRun") -> Iterator[str]:
    from vernier.report.live.console import format_figures

    done = finished.done
    if done.held_out is not None:
        yield (
            f"held out   {format_figures(done.held_out.figures)}  on {done.held_out.samples:,} images, with the best "
            f"weights (step {done.step or 0:,}), which were chosen by them"
        )
    if done.test is not None:
        yield (
            f"test       {format_figures(done.test.figures)}  on {done.test.samples:,} images of the test split, by "
            "which nothing was chosen"
        )
    yield f"model      {done.model}"
    yield f"page       {finished.page}"
    yield f"use it     {command('predict', done.model, 'photo.jpg')}"
