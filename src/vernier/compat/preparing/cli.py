"""`vernier data make`, `prepare`, `verify`, `inspect` and `get`: what they print."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.records.codec import encode
from vernier.templates import lines_of, open_templates
from vernier.wording import plural

from .api import Inspection, get_set, inspect_set, make_set, prepare_set, verify_set
from .requests import GetData, InspectData, MakeData, PrepareData, VerifyData


def make(request: MakeData, terminal: Terminal) -> int:
    return _print_path(make_set(request, terminal), request, terminal)


def get(request: GetData, terminal: Terminal) -> int:
    return _print_path(get_set(request, terminal), request, terminal)


def _print_path(path: Path, request: MakeData | GetData, terminal: Terminal) -> int:
    terminal.print_result({"path": path}, request.json, lambda result: [str(path)])
    return EXIT_DONE


def prepare(request: PrepareData, terminal: Terminal) -> int:
    terminal.print_result(prepare_set(request, terminal), request.json, partial(_lines, "prepared.txt"))
    return EXIT_DONE


def verify(request: VerifyData, terminal: Terminal) -> int:
    result = verify_set(request, terminal)
    terminal.print_result(result, request.json, partial(_lines, "verified.txt"))
    return EXIT_DONE if result.sound else EXIT_FAILED


def _lines(template: str, result: object) -> list[str]:
    return lines_of(open_templates(__file__, plural=plural), template, {"result": result})


def inspect(request: InspectData, terminal: Terminal) -> int:
    terminal.print_result(inspect_set(request, terminal), request.json, _inspection_lines)
    return EXIT_DONE


def _inspection_lines(inspection: Inspection) -> Iterator[str]:
    for split, facts in encode(inspection.splits).items():
        notes = facts.pop("notes", ())
        yield split
        yield from (f"  {key.replace('_', ' '):28s} {_shown(value)}" for key, value in facts.items())
        yield from (f"  note: {note}" for note in notes)
    if inspection.sheet:
        yield f"contact sheet  {inspection.sheet}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {number:g}" for key, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
