"""Writes model_card.md beside an exported model: what it is, how it was trained, its result, and what was not measured.

Made from the checkpoint and its run directory alone, or, for a model that came as a file, from what that file says. A
card belongs to weights: exporting the same weights again in another format adds a file to their card, other weights get
a card of their own. The text is in `templates`.
"""

from pathlib import Path

from vernier.clock import utc_stamp
from vernier.config import config_from_tree
from vernier.errors import RunFailed
from vernier.measure.agreement import agreement_lines
from vernier.models import info, is_detector
from vernier.records.codec import decode
from vernier.records.environment import decode_environment
from vernier.records.events import EvalEvent, StartEvent
from vernier.records.run import CheckpointState, ExportCheck, ModelFile
from vernier.records.what_ran import line_of
from vernier.store import CheckpointDir, RunDir, read_object, write_atomically
from vernier.store.durable import sha256_of_file
from vernier.templates import open_templates
from vernier.wording import plural

from .live.console import TTA, format_figures

CARD = "model_card.md"


def write_card(
    file: Path,
    about: ModelFile,
    *,
    origin: Path,
    checkpoint: Path | None,
    prepared: str = "",
    selected: bool = False,
    check: ExportCheck | None = None,
) -> Path:
    """Write or extend the card of an exported file, and return the card's path.

    The model is of `checkpoint`, or came in the file `origin`. `selected`: these weights were asked for as the best.
    """
    digest = _weights_digest(checkpoint, about.averaged) if checkpoint else sha256_of_file(origin)[:16]
    mark = f"<!-- vernier weights {digest} -->"
    shared, own = file.parent / CARD, file.parent / f"{file.name}.{CARD}"
    entry = _file_entry(file, about.input, check)
    if shared.exists() and mark in (text := shared.read_text(encoding="utf-8", errors="replace")):
        # Once, also if a command was killed after this and is repeated.
        return shared if entry in text else _write(shared, text.rstrip("\n") + "\n" + entry)
    values: dict[str, object] = {"about": about, "prepared": prepared, "origin": origin.name, "today": utc_stamp()[:10]}
    values |= _values_of_run(checkpoint, about.averaged, selected) if checkpoint else {}
    body = _TEMPLATES.get_template("model_card.md" if checkpoint else "model_card_of_file.md").render(values)
    text = f"{mark}\n\n{body.rstrip()}\n\n## Files\n\n{entry}"
    return _write(own if shared.exists() else shared, text)


def _write(card: Path, text: str) -> Path:
    try:
        write_atomically(card, text)
    except OSError as error:
        raise RunFailed(f"{card} could not be written: {error.strerror}. The exported file is complete.") from None
    return card


def describe_check(check: ExportCheck) -> str:
    """A sentence about how an exported model was compared with PyTorch."""
    same = "" if check.same_top1 is None else f"the same class for {check.same_top1} of {check.images}, "
    return (
        f"checked with {check.against} against PyTorch on {check.images} validation images of {check.data}: {same}"
        f"largest difference {check.max_difference:.2g} of outputs up to {check.largest_output:.3g}"
    )


def _weights_digest(checkpoint: Path, averaged: bool) -> str:
    """The first digits of the hash of the exported weights."""
    files = read_object(checkpoint / "manifest.json")["files"]
    digest: str = files["ema.safetensors" if averaged else "model.safetensors"]["sha256"]
    # 64 bits tell the weights of one folder apart.
    return digest[:16]


def _file_entry(file: Path, takes: str, check: ExportCheck | None) -> str:
    size = f"{file.stat().st_size / 1e6:,.1f} MB"
    content = f"input `images`: {takes}. Any batch size" if takes else "weights alone; no code"
    content += ". It describes itself: `vernier eval`, `vernier predict` and `vernier bench infer` take it as it is"
    lines = [f"- `{file.name}` ({size}): {content}."]
    if check is not None:
        sentence = describe_check(check)
        lines.append(f"  {sentence[0].upper()}{sentence[1:]}.")
    return "\n".join(lines) + "\n"


def _values_of_run(checkpoint: Path, averaged: bool, selected: bool) -> dict[str, object]:
    """What the card of a checkpoint is filled with: its own records, and those of its run if it is still in one."""
    state = decode(CheckpointState, CheckpointDir(0, checkpoint).read_state())
    run = RunDir.of_checkpoint(checkpoint)
    events = run.history() if run else []
    start = next((e for e in events if isinstance(e, StartEvent)), None)
    environment = decode_environment(run.read_environment()) if run else None
    status = run.status() if run else None
    summary = status.summary if status else None
    # The agreement is about the weights at the end of the run.
    agreement = summary.agreement if summary and summary.step == state.step else None
    return {
        **vars(config_from_tree(state.config)),
        "state": state,
        "averaged": averaged,
        "start": start,
        "status": status,
        "summary": summary,
        "result": state.progress.result,
        "eval_step": state.progress.last_eval_step,
        "agreement": agreement_lines(agreement) if agreement else (),
        "environment": environment,
        "device_names": ", ".join(sorted({d.name for d in environment.devices})) if environment else "",
        "ran": line_of([start.ran if start else None]),
        # Of how many evaluations these weights were chosen as the best.
        "selected_from": sum(isinstance(e, EvalEvent) for e in events) if selected else 0,
    }


def _escape_markdown(name: str) -> str:
    """A class name as plain text: names come from folders, and a card is rendered."""
    return "".join("\\" + c if c in "\\`*_[]<>#|" else c for c in name if c.isprintable())


_TEMPLATES = open_templates(
    __file__,
    plural=plural,
    figures=format_figures,
    info=info,
    is_detector=is_detector,
    escaped=_escape_markdown,
)
_TEMPLATES.globals |= {"shown": 100, "tta": TTA}
"""`shown`: the number of classes that are listed."""
