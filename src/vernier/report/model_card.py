"""model_card.md: what an exported model is, how it came to be, what it reached and what nobody has measured.

Made from the checkpoint and its run directory alone. A card belongs to weights: exporting the same weights again in
another format adds a file to it, other weights get a card of their own.
"""

from pathlib import Path
from typing import Any

from vernier.clock import utc_stamp
from vernier.config import Config, Recipe, from_dict
from vernier.errors import RunFailed
from vernier.measure.statistics.agreement import agreement_lines
from vernier.models import info
from vernier.records.codec import decode
from vernier.records.environment import Environment, decode_environment
from vernier.records.run import Agreement
from vernier.report.live.console import TTA, format_figures
from vernier.store import read_json, run_of_checkpoint, write_atomically

CARD = "model_card.md"
_CLASSES_SHOWN = 100


def write_card(file: Path, checkpoint: Path, *, averaged: bool, takes: str, check: dict[str, Any] | None) -> Path:
    """Write or extend the card beside an exported file; the path of the card."""
    mark = f"<!-- vernier weights {_identity(checkpoint, averaged)} -->"
    shared, own = file.parent / CARD, file.parent / f"{file.name}.{CARD}"
    entry = _file_entry(file, takes, check)
    if shared.exists() and mark in (text := shared.read_text(encoding="utf-8", errors="replace")):
        return _written(shared, text.rstrip("\n") + "\n" + entry)
    sections = [*_card(checkpoint, averaged), "## Files\n\n" + entry]
    text = mark + "\n\n" + "\n\n".join(section.strip() for section in sections) + "\n"
    return _written(own if shared.exists() else shared, text)


def _written(card: Path, text: str) -> Path:
    try:
        write_atomically(card, text)
    except OSError as error:
        raise RunFailed(f"{card} could not be written: {error.strerror}; the export itself was.") from None
    return card


def checked(check: dict[str, Any]) -> str:
    """How an exported network was checked, in a sentence."""
    same = "" if check["same_top1"] is None else f"the same class for {check['same_top1']} of {check['images']}, "
    return (
        f"checked with {check['against']} against PyTorch on {check['images']} validation images of {check['data']}: {same}"
        f"largest difference {check['max_difference']:.2g} of outputs up to {check['largest_output']:.3g}"
    )


def _identity(checkpoint: Path, averaged: bool) -> str:
    """Of the weights that were taken: by content."""
    files = read_json(checkpoint / "manifest.json")["files"]
    digest: str = files["ema.safetensors" if averaged else "model.safetensors"]["sha256"]
    return digest[:16]


def _file_entry(file: Path, takes: str, check: dict[str, Any] | None) -> str:
    size = f"{file.stat().st_size / 1e6:,.1f} MB"
    what = f"input `images`: {takes}. Any batch size" if takes else "weights alone; no code"
    lines = [f"- `{file.name}` ({size}): {what}."]
    if check is not None:
        said = checked(check)
        lines.append(f"  {said[0].upper()}{said[1:]}.")
    return "\n".join(lines) + "\n"


def _card(checkpoint: Path, averaged: bool) -> list[str]:
    state = read_json(checkpoint / "state.json")
    config = from_dict(Config, state["config"])
    run = run_of_checkpoint(checkpoint)
    events = run.read_events() if run else []
    start = next((e for e in events if e["kind"] == "start"), {})
    status = run.read_status() if run else {}
    recipe = config.recipe
    return [
        f"# {recipe.name}: {recipe.model.name}, {len(state['classes'])} classes",
        f"{recipe.about}\n\nWeights of step {state['step']:,}{', averaged over training' if averaged else ''}. "
        f"Exported {utc_stamp()[:10]} by Vernier.",
        _model(config, state),
        _result(state, status, averaged),
        _recipe(config, start),
        _data(recipe, state, start),
        _machine(decode_environment(run.read_environment()) if run else None, status),
        _limits(recipe, state, status, evaluations=sum(e["kind"] == "eval" for e in events)),
    ]


def _model(config: Config, state: dict[str, Any]) -> str:
    data, spec, classes = config.recipe.data, config.recipe.model, state["classes"]
    more = f", ... ({len(classes) - _CLASSES_SHOWN} more)" if len(classes) > _CLASSES_SHOWN else ""
    named = ", ".join(f"{number} {_plain(name)}" for number, name in enumerate(classes[:_CLASSES_SHOWN]))
    detector = info(spec.name).ssd is not None
    sized = (
        f"resized to {data.eval_px} x {data.eval_px} px (antialiased {data.interpolation})"
        if detector
        else f"short side resized to {data.eval_short_side_px} px (antialiased {data.interpolation}), "
        f"centre {data.eval_px} x {data.eval_px} px"
    )
    boxes = (
        "\n- output: offsets to the network's default boxes, and logits with class 0 for background" if detector else ""
    )
    return (
        f"## Model\n\n- network: `{spec.name}`, {info(spec.name).summary}\n"
        f"- input: {state['channels']} channel(s), RGB, {sized}{boxes}\n"
        f"- normalisation: (pixel / 255 - {list(data.mean)}) / {list(data.std)}\n- classes by number: {named}{more}"
    )


def _plain(name: str) -> str:
    """A class name as text: names come from folders, and a card is rendered."""
    return "".join("\\" + c if c in "\\`*_[]<>#|" else c for c in name if c.isprintable())


def _result(state: dict[str, Any], status: dict[str, Any], averaged: bool) -> str:
    progress = state["progress"]
    result = progress["result"]
    if result is None:
        return "## Result\n\nNot evaluated before this checkpoint was written."
    part = "" if result["exact"] else ", **part of the validation set only**"
    part += TTA if result.get("flip_tta") else ""
    kind = "averaged weights" if result["averaged"] else "raw weights"
    lines = [
        f"{format_figures(result)} on {result['samples']:,} validation images{part}, {kind} of step {progress['last_eval_step']:,}."
    ]
    if result["averaged"] != averaged or progress["last_eval_step"] != state["step"]:
        lines.append(
            "These are not exactly the weights that were evaluated; evaluate them again before you rely on it."
        )
    found = (status.get("summary") or {}).get("agreement")
    if found and status["summary"]["step"] == state["step"]:
        lines += agreement_lines(decode(Agreement, found))
    return "## Result\n\n" + "\n\n".join(lines)


def _recipe(config: Config, start: dict[str, Any]) -> str:
    recipe, machine = config.recipe, config.machine
    origin = f" ({recipe.source})" if recipe.source else ""
    weights = f"\n- started from: `{recipe.model.weights}`" if recipe.model.weights else ""
    short = start.get("stop_step", 0) < start.get("total_steps", 0)
    cut = f"\n- **cut short**: {start['stop_step']:,} of {start['total_steps']:,} steps" if short else ""
    rate = start.get("lr", recipe.optim.lr)
    return (
        f"## Recipe\n\n- `{recipe.name}`{origin}; `vernier train --config RUN/config.json` repeats it\n"
        f"- {recipe.schedule.epochs:g} epochs, global batch {recipe.global_batch:,}, {recipe.optim.name}, peak learning rate "
        f"{rate:g} ({recipe.schedule.kind}), weight decay {recipe.optim.weight_decay:g}\n"
        f"- augmentation: crop {recipe.augment.crop}, flip {recipe.augment.flip:g}, policy {recipe.augment.policy}; seed "
        f"{recipe.seed}; {machine.precision}, {machine.mode}{weights}{cut}"
    )


def _data(recipe: Recipe, state: dict[str, Any], start: dict[str, Any]) -> str:
    counts = f": {start['train_samples']:,} training and {start['val_samples']:,} validation images" if start else ""
    return (
        f"## Data\n\n- `{recipe.data.source}`{counts}\n- fingerprint of the training set: `{state['data_fingerprint']}`"
    )


def _machine(environment: Environment | None, status: dict[str, Any]) -> str:
    if environment is None:
        return "## Trained on\n\nNot known: the checkpoint was taken out of its run."
    names = ", ".join(sorted({device.name for device in environment.devices}))
    training = (status.get("summary") or {}).get("training") or {}
    speed = f", {training['images_per_s_total']:,.0f} img/s in all" if "images_per_s_total" in training else ""
    versions = environment.versions
    return (
        f"## Trained on\n\n{len(environment.devices)} x {environment.device_kind} ({names}){speed}; torch {versions['torch']}, "
        f"Vernier {versions['vernier']}, Python {versions['python']}."
    )


def _limits(recipe: Recipe, state: dict[str, Any], status: dict[str, Any], evaluations: int) -> str:
    every = "what is in an image" if info(recipe.model.name).ssd is not None else "any image"
    lines = [
        f"It knows these {len(state['classes'])} classes and nothing else: {every} gets one of them, with a score that was not "
        "calibrated.",
        "The result is on validation images of the same source; other cameras, places or times were not measured, nor were "
        "robustness, fairness or bias.",
        f"Images must be prepared as above; another size than {recipe.data.eval_px} px was not measured.",
    ]
    if evaluations > 1 and state["progress"]["best_step"] == state["step"]:
        lines.append(
            f"These weights are the best of {evaluations} evaluations on the validation set: its figure is a little too good."
        )
    if bad := (status.get("summary") or {}).get("bad_images"):
        lines.append(f"{len(bad)} images of the data could not be read and were replaced.")
    if status.get("status") not in (None, "finished"):
        lines.append(f"The run had not finished when this was written: {status['status']}.")
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)
