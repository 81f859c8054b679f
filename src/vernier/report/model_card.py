"""Writes model_card.md beside an exported model: what it is, how it was trained, its result, and what was not measured.

Made from the checkpoint and its run directory alone, or, for a model that came as a file, from what that file says. A
card belongs to weights: exporting the same weights again in another format adds a file to their card, other weights get
a card of their own.
"""

from pathlib import Path

from vernier.clock import utc_stamp
from vernier.config import Config, Recipe, config_from_tree
from vernier.errors import RunFailed
from vernier.measure.agreement import agreement_lines
from vernier.models import info, is_detector, shown_name
from vernier.records.codec import decode
from vernier.records.environment import Environment, decode_environment
from vernier.records.events import EvalEvent, StartEvent
from vernier.records.run import CheckpointState, ExportCheck, ModelFile, RunStatus
from vernier.records.what_ran import line_of
from vernier.store import CheckpointDir, read_checkpoint_state, read_object, run_of_checkpoint, write_atomically
from vernier.store.durable import sha256_of_file
from vernier.wording import plural

from .live.console import TTA, format_figures

CARD = "model_card.md"
_CLASSES_SHOWN = 100


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
        return _write(shared, text.rstrip("\n") + "\n" + entry)
    body = _card(checkpoint, about.averaged, selected) if checkpoint else _card_of_file(about, origin, prepared)
    sections = [*body, "## Files\n\n" + entry]
    text = mark + "\n\n" + "\n\n".join(section.strip() for section in sections) + "\n"
    return _write(own if shared.exists() else shared, text)


def _write(card: Path, text: str) -> Path:
    try:
        write_atomically(card, text)
    except OSError as error:
        raise RunFailed(f"{card} could not be written: {error.strerror}. The exported file is complete.") from None
    return card


def describe_check(check: ExportCheck) -> str:
    """How an exported network was checked, in a sentence."""
    same = "" if check.same_top1 is None else f"the same class for {check.same_top1} of {check.images}, "
    return (
        f"checked with {check.against} against PyTorch on {check.images} validation images of {check.data}: {same}"
        f"largest difference {check.max_difference:.2g} of outputs up to {check.largest_output:.3g}"
    )


def _weights_digest(checkpoint: Path, averaged: bool) -> str:
    """The first digits of the hash of the exported weights."""
    files = read_object(checkpoint / "manifest.json")["files"]
    digest: str = files["ema.safetensors" if averaged else "model.safetensors"]["sha256"]
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


def _card_of_file(about: ModelFile, origin: Path, prepared: str) -> list[str]:
    """The card of a model that came as a file: only what that file says."""
    result = "Not known: the file has none, and nothing was evaluated here."
    if about.result is not None:
        step = "" if about.result_step is None else f" at step {about.result_step:,}"
        result = f"{format_figures(about.result.figures)} on {about.result.samples:,} validation images{step}."
    return [
        f"# {about.model}, {len(about.classes)} classes",
        f"From `{origin.name}`. Exported {utc_stamp()[:10]} by Vernier.",
        f"## Model\n\n- network: `{about.network or about.model}`, {info(about.model).summary}\n"
        f"- input: {plural(about.channels, 'channel')}; {prepared}\n"
        f"- normalisation: (pixel / 255 - {list(about.mean)}) / {list(about.std)}\n"
        f"- classes by number: {_class_list(about.classes)}",
        f"## Result\n\n{result}",
        f"## Trained on\n\n{about.ran or 'Not known: the weights came as a file.'}",
        f"## Limits\n\n- Data, recipe and machine are not known here; ask whoever published `{origin.name}`.",
    ]


def _class_list(classes: tuple[str, ...]) -> str:
    more = f", ... ({len(classes) - _CLASSES_SHOWN} more)" if len(classes) > _CLASSES_SHOWN else ""
    return ", ".join(f"{number} {escape_markdown(name)}" for number, name in enumerate(classes[:_CLASSES_SHOWN])) + more


def _card(checkpoint: Path, averaged: bool, selected: bool) -> list[str]:
    state = decode(CheckpointState, read_checkpoint_state(CheckpointDir(0, checkpoint)))
    config = config_from_tree(state.config)
    run = run_of_checkpoint(checkpoint)
    events = run.history() if run else []
    start = next((e for e in events if isinstance(e, StartEvent)), None)
    evaluations = [e for e in events if isinstance(e, EvalEvent)]
    status = run.status() if run else None
    recipe = config.recipe
    return [
        f"# {recipe.name}: {recipe.model.name}, {len(state.classes)} classes",
        f"{recipe.about}\n\nWeights of step {state.step:,}{', averaged over training' if averaged else ''}. "
        f"Exported {utc_stamp()[:10]} by Vernier.",
        _model(config, state),
        _result(state, status, averaged),
        _recipe(config, start),
        _data(recipe, state, start),
        _machine(decode_environment(run.read_environment()) if run else None, status, start),
        _limits(recipe, state, status, selected_from=len(evaluations) if selected else 0),
    ]


def _model(config: Config, state: CheckpointState) -> str:
    data, spec = config.recipe.data, config.recipe.model
    if is_detector(spec.name):
        size = f"resized to {data.eval_px} x {data.eval_px} px (antialiased {data.interpolation})"
        output = "\n- output: offsets to the network's default boxes, and logits with class 0 for background"
    else:
        short_side = f"short side resized to {data.eval_short_side_px} px (antialiased {data.interpolation})"
        size, output = f"{short_side}, centre {data.eval_px} x {data.eval_px} px", ""
    return (
        f"## Model\n\n- network: `{shown_name(spec)}`, {info(spec.name).summary}\n"
        f"- input: {plural(state.channels, 'channel')}, RGB, {size}{output}\n"
        f"- normalisation: (pixel / 255 - {list(data.mean)}) / {list(data.std)}\n"
        f"- classes by number: {_class_list(state.classes)}"
    )


def escape_markdown(name: str) -> str:
    """A class name as plain text: names come from folders, and a card is rendered."""
    return "".join("\\" + c if c in "\\`*_[]<>#|" else c for c in name if c.isprintable())


def _result(state: CheckpointState, status: RunStatus | None, averaged: bool) -> str:
    result, eval_step = state.progress.result, state.progress.last_eval_step
    if result is None:
        return "## Result\n\nNot evaluated before this checkpoint was written."
    part = "" if result.exact else ", **part of the validation set only**"
    part += TTA if result.flip_tta else ""
    kind = "averaged weights" if result.averaged else "raw weights"
    lines = [
        f"{format_figures(result.figures)} on {result.samples:,} validation images{part}, {kind} of step {eval_step:,}."
    ]
    if result.averaged != averaged or eval_step != state.step:
        lines.append(
            "These are not exactly the weights that were evaluated; evaluate them again before you rely on it."
        )
    summary = status.summary if status else None
    if summary and summary.agreement and summary.step == state.step:
        lines += agreement_lines(summary.agreement)
    return "## Result\n\n" + "\n\n".join(lines)


def _recipe(config: Config, start: StartEvent | None) -> str:
    recipe, machine = config.recipe, config.machine
    origin = f" ({recipe.source})" if recipe.source else ""
    weights = f"\n- started from: `{recipe.model.weights}`" if recipe.model.weights else ""
    cut = ""
    if start and start.stop_step < start.total_steps:
        cut = f"\n- **cut short**: {start.stop_step:,} of {start.total_steps:,} steps"
    lr = start.lr if start else recipe.optim.lr
    return (
        f"## Recipe\n\n- `{recipe.name}`{origin}; `vernier train --config RUN/config.json` repeats it\n"
        f"- {recipe.schedule.epochs:g} epochs, global batch {recipe.global_batch:,}, {recipe.optim.name}, "
        f"peak learning rate {lr:g} ({recipe.schedule.kind}), weight decay {recipe.optim.weight_decay:g}\n"
        f"- augmentation: crop {recipe.augment.crop}, flip {recipe.augment.flip:g}, policy {recipe.augment.policy}; "
        f"seed {recipe.seed}; {machine.precision}, {machine.mode}{weights}{cut}"
    )


def _data(recipe: Recipe, state: CheckpointState, start: StartEvent | None) -> str:
    counts = f": {start.train_samples:,} training and {start.val_samples:,} validation images" if start else ""
    return f"## Data\n\n- `{recipe.data.source}`{counts}\n- fingerprint of the training set: `{state.data_fingerprint}`"


def _machine(environment: Environment | None, status: RunStatus | None, start: StartEvent | None) -> str:
    if environment is None:
        return "## Trained on\n\nNot known: the checkpoint is not in its run directory."
    names = ", ".join(sorted({device.name for device in environment.devices}))
    speed = status.summary.training if status and status.summary else None
    rate = f", {speed.images_per_s_total:,.0f} img/s total" if speed else ""
    versions = ", ".join(
        f"{label} {environment.versions.get(name)}"
        for label, name in (("torch", "torch"), ("Vernier", "vernier"), ("Python", "python"))
    )
    machine = f"{len(environment.devices)} x {environment.device_kind} ({names}){rate}; {versions}."
    return f"## Trained on\n\n{machine}\n\n{line_of([start.ran if start else None])}"


def _limits(recipe: Recipe, state: CheckpointState, status: RunStatus | None, selected_from: int) -> str:
    """What the card cannot promise. `selected_from`: of how many evaluations these weights were chosen as the best."""
    subject = "every object in an image" if is_detector(recipe.model.name) else "any image"
    lines = [
        f"It has these {len(state.classes)} classes and no others: {subject} gets one of them, with a score that is "
        "not calibrated.",
        "The result is on validation images of the same source. Other cameras, locations or times were not measured, "
        "nor were robustness, fairness or bias.",
        f"Images must be prepared as above; other sizes than {recipe.data.eval_px} px were not measured.",
    ]
    if selected_from > 1:
        lines.append(
            f"These weights are the best of {selected_from} evaluations on the validation set, so its figure is "
            "slightly optimistic."
        )
    if status and status.summary and (bad := status.summary.bad_images):
        lines.append(f"{len(bad)} images of the data could not be read and were replaced.")
    if status and status.status != "finished":
        lines.append(f"The run had not finished when this was written: {status.status}.")
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)
