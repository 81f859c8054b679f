"""`vernier data make`, `prepare`, `verify`, `inspect` and `get`: what they print."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.api.data import Inspection, get_set, inspect_set, make_set, prepare_set, verify_set
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.records.codec import encode
from vernier.requests.data import GetData, InspectData, MakeData, PrepareData, VerifyData
from vernier.wording import plural

from .output import Terminal

if TYPE_CHECKING:
    from vernier.data.preparing.packing import PackedSplit
    from vernier.data.preparing.verify import VerifyResult


def make(request: MakeData, terminal: Terminal) -> int:
    terminal.print_result({"path": make_set(request, terminal)}, request.json, _path_line)
    return EXIT_DONE


def get(request: GetData, terminal: Terminal) -> int:
    terminal.print_result({"path": get_set(request, terminal)}, request.json, _path_line)
    return EXIT_DONE


def _path_line(result: dict[str, Path]) -> list[str]:
    return [str(result["path"])]


def prepare(request: PrepareData, terminal: Terminal) -> int:
    terminal.print_result(prepare_set(request, terminal), request.json, _written_lines)
    return EXIT_DONE


def _written_lines(written: "tuple[PackedSplit, ...] | dict[str, int]") -> Iterator[str]:
    if isinstance(written, dict):
        yield from (f"{split}  {number:,} images" for split, number in written.items())
        return
    for packed in written:
        line = f"{packed.split}  {packed.samples:,} images, {packed.bytes / 2**20:,.1f} MiB"
        if packed.source_bytes:
            line += f" in {plural(packed.shards, 'shard')} from {packed.source_bytes / 2**20:,.1f} MiB; "
            line += f"{packed.restart_indexed:,} restart-indexed, {packed.kept_as_they_are:,} unchanged"
        if packed.files:
            line += f" in {plural(packed.files, 'file')}"
            line += f"; {packed.converted:,} were no RGB JPEG and were converted" if packed.converted else ""
        if packed.continued_after:
            line += f"; {packed.continued_after:,} images of an earlier run were kept"
        yield line
        yield from (f"  omitted: {image}" for image in packed.left_out)
        yield from (f"  note: {note}" for note in packed.notes)


def verify(request: VerifyData, terminal: Terminal) -> int:
    result = verify_set(request, terminal)
    terminal.print_result(result, request.json, _verification_lines)
    return EXIT_DONE if result.sound else EXIT_FAILED


def _verification_lines(result: "VerifyResult") -> list[str]:
    counts = ", ".join(f"{split} {n:,}" for split, n in result.images.items())
    return [
        *(f"note       {note}" for note in result.uncovered),
        *(f"bad        {problem}" for problem in result.bad),
        *(f"in two     {pair}" for pair in result.duplicates),
        f"{counts} images; {len(result.bad)} bad, {len(result.duplicates)} in more than one split, "
        f"{sum(result.repeated.values())} repeated within a split",
    ]


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
