"""What a finished command left behind, as names and values: two of them are equal when nothing a user keeps differs.

Left out is only what a clock measured.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from vernier.records.codec import encode
from vernier.records.events import EpochEvent, EvalEvent, Event, StepEvent
from vernier.store import RunDir, find_runs

Result = dict[str, Any]
_MEASURED = {
    "time",
    "t_s",
    "step_s",
    "wait_s",
    "batch_s",
    "seconds",
    "images_per_s_total",
    "own_s_by_rank",
    "step_times",
}


def finished_runs(out: Path) -> list[RunDir]:
    return [run for run in find_runs(out) if run.status().status == "finished"]


def training_result(out: Path) -> Result:
    """The one finished run under a folder: checkpoints, pointers, every step, epoch and evaluation, predictions."""
    runs = finished_runs(out)
    if len(runs) != 1:
        return {"finished runs": len(runs)}
    run = runs[0]
    return {
        **_checkpoints(run.path / "checkpoints"),
        **{f"predictions/{p.name}": _sha256(p) for p in sorted((run.path / "predictions").glob("*.json"))},
        **_history(run.history()),
    }


def _checkpoints(folder: Path) -> Result:
    steps = sorted(folder.glob("step-*"))
    result: Result = {"checkpoints": [step.name for step in steps]}
    for step in steps:
        result |= {f"{step.name}/{file.name}": _sha256(file) for file in sorted(step.glob("*.safetensors"))}
        state = json.loads((step / "state.json").read_text())
        del state["progress"]["spent_s"]
        del state["config"]["limits"]  # how far this session may go
        result[f"{step.name}/state.json"] = state
    pointers = [folder / name for name in ("latest", "best")]
    return result | {pointer.name: pointer.read_text() for pointer in pointers if pointer.exists()}


def _history(events: list[Event]) -> Result:
    """Every figure of every step, epoch and evaluation; a list each, so that a repeated one is seen."""
    result: Result = {}
    for event in events:
        if isinstance(event, StepEvent | EpochEvent | EvalEvent):
            figures = {k: v for k, v in encode(event).items() if k not in _MEASURED}
            result.setdefault(f"{event.kind} {event.step}", []).append(figures)
    return result


def tree_result(folder: Path) -> Result:
    """SHA-256 of every file below a folder, hidden ones included; temporary ones of a process are `leftovers`."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and ".tmp-" not in p.name)
    return {str(p.relative_to(folder)): _sha256(p) for p in files}


def leftovers(folder: Path) -> list[str]:
    """Hidden files and folders: what was being written when a process ended, and should be tidied by the next one."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob(".*"))


def differences(result: Result, reference: Result) -> list[str]:
    """What differs, one line of readable length each."""
    names = [*reference, *(name for name in result if name not in reference)]
    return [
        f"{name}: {_shown(result, name)} instead of {_shown(reference, name)}"
        for name in names
        if result.get(name) != reference.get(name)
    ]


def _shown(result: Result, name: str) -> str:
    text = str(result.get(name, "nothing"))
    return text if len(text) <= 200 else f"{text[:200]}..."


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
