"""Export of a trained model to a file: weights alone (safetensors, torchvision's names); formats of whole networks plug
in (`model_file.NetworkFormat`).

Every file describes itself (`model_file`). The model card beside the file is `report.model_card`'s.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from vernier.config import Config, to_dict
from vernier.config.migrations import SCHEMAS
from vernier.data.unfinished import locked_file
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.models import entry_of, shown_name, weights
from vernier.records.events import StartEvent
from vernier.records.run import ExportCheck, ModelFile
from vernier.references import given, use
from vernier.store import RunDir
from vernier.store.durable import remove_leftover, temporaries
from vernier.version import describe_version

from .model_file import network_formats, read_description, to_metadata
from .trained import Trained

_WEIGHTS = {"safetensors": ".safetensors", "torchvision": ".pth"}
"""Formats of weights alone, with their suffixes."""


@frozen
class Exported:
    """A file that was written, what it says about itself, and how it was checked (weights alone are not)."""

    path: Path
    about: ModelFile
    check: ExportCheck | None = None


def _suffixes() -> dict[str, str]:
    """The ending of every format's files."""
    return _WEIGHTS | {name: each.suffix for name, each in network_formats().items()}


def choose_format(form: str | None, out: Path | None) -> str:
    """The format of a file by its ending, or the given one. Raises ConfigError if they contradict each other."""
    ending, suffixes = "" if out is None else out.suffix.lower(), _suffixes()
    of_ending = next((format for format, suffix in suffixes.items() if suffix == ending), None)
    if form is None and ending and not of_ending:
        raise ConfigError(
            f"{given('out', out)}: no format has the ending {ending}. Use {', '.join(suffixes.values())}, or give "
            f"{use('format', slot='NAME')}, too."
        )
    if form and of_ending and form != of_ending:
        raise ConfigError(
            f"{given('format', form)} and {given('out', out)} contradict each other. Use the ending {suffixes[form]}, "
            f"or {use('format', of_ending)}."
        )
    return form or of_ending or "safetensors"


def check_export(form: str, out: Path | None, *, data: str | None, normalized_input: bool) -> None:
    """Raise ConfigError for what can be refused before any model is loaded."""
    if form in _WEIGHTS and (data is not None or normalized_input):
        other = given("data.source", data) if data is not None else given("normalized_input", True)
        raise ConfigError(
            f"{given('format', form)} writes weights alone, and {other} is for whole models. Use "
            f"{use('format', 'onnx')}."
        )
    # Before the model is loaded, which takes seconds.
    if form not in _WEIGHTS:
        network_formats()[form].check()
    if out is not None:
        _require_free(out)


def export(
    trained: Trained,
    form: str,
    out: Path | None,
    *,
    data: str | None = None,
    normalized_input: bool = False,
    again: bool = False,
) -> Exported:
    """Write a model in one of the formats; without `out`: to the current folder, named after the recipe.

    A network is checked on images of `data`, or of the run's own data. Nothing is overwritten, except a file with the
    same model if an interrupted export is done `again`. Raises RunFailed, and removes the file, when a network does
    not compute what PyTorch computes.
    """
    if trained.runtime:
        raise ConfigError(
            f"{trained.origin} is a model without separate weights, run by {trained.runtime}. Export the run or a "
            "safetensors file instead."
        )
    step = "" if trained.step is None else f"-step{trained.step}"
    target = out or Path(f"{trained.config.recipe.name}{step}{_suffixes()[form]}")
    about = describe_model(trained)
    replaced = again and _has_same_model(target, about)
    check_export(form, None if replaced else target, data=data, normalized_input=normalized_input)
    try:
        with locked_file(target.with_name(f".{target.name}.lock")) as alone:
            if not replaced:
                _require_free(target)  # of two at once, the other may have written it meanwhile
            for leftover in temporaries(target.parent) if alone else ():
                if leftover.name.startswith(f".{target.name}.tmp-"):  # of a killed export: as large as the model
                    remove_leftover(leftover)
            if form not in _WEIGHTS:
                write = network_formats()[form].export
                return write(trained, target, about, data=data, normalized_input=normalized_input)
            _write_weights(trained, form, target, to_metadata(about))
    except OSError as error:
        raise unwritable(target, error) from None
    return Exported(path=target, about=about)


def _has_same_model(file: Path, about: ModelFile) -> bool:
    description = read_description(file)
    return description is not None and replace(description, input=about.input, pixels=about.pixels) == about


def on_cpu(config: Config) -> Config:
    """Exporters trace the plain network, wherever it was trained."""
    plain = replace(config.machine, device="cpu", precision="fp32", mode="eager", channels_last=False)
    return replace(config, machine=plain)


def describe_model(trained: Trained) -> ModelFile:
    """What a file with this model says about itself."""
    recipe, result = trained.config.recipe, trained.result
    data, figures = recipe.data, result.figures if result else {}
    # The recipe as it was trained. Machine and limits are those of whoever uses the file.
    settings = Config(recipe=replace(recipe, data=replace(data, source=trained.own_data)))
    return ModelFile(
        model=recipe.model.name,
        network=shown_name(recipe.model),
        recipe=recipe.name,
        vernier=describe_version(),
        ran=trained.ran or _ran_line(trained.checkpoint),
        data_fingerprint=trained.own_fingerprint,
        settings={"schema": SCHEMAS["config"], **to_dict(settings)},
        classes=trained.classes,
        channels=trained.channels,
        mean=data.mean,
        std=data.std,
        eval_px=data.eval_px,
        eval_short_side_px=data.eval_short_side_px,
        interpolation=data.interpolation,
        step=trained.step,
        averaged=trained.averaged,
        result=result,
        result_step=trained.result_step,
        figures={name: figures[name] for name in ("top1", "AP") if name in figures},
    )


def _ran_line(checkpoint: Path | None) -> str:
    """What ran in the run of a checkpoint, in one line; empty where it was not recorded."""
    run = None if checkpoint is None else RunDir.of_checkpoint(checkpoint)
    start = next((event for event in run.history() if isinstance(event, StartEvent)), None) if run else None
    return start.ran.line() if start and start.ran else ""


def _require_free(target: Path) -> None:
    if target.exists():
        raise ConfigError(f"{target} exists already. Choose another file with {use('out', slot='FILE')}, or remove it.")
    if not target.parent.is_dir():
        raise ConfigError(f"{given('out', target)}: the folder {target.parent} does not exist.")
    try:
        # Fails now rather than after the work. Without a name: nothing that could be left is taken for a model.
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"Cannot write {target}: {error.strerror}. Choose another file with {use('out', slot='FILE')}."
        ) from None


def unwritable(target: Path, error: Exception) -> RunFailed:
    """The error of a file that could not be written, with what to do."""
    return RunFailed(
        f"{target} could not be written: {error}. Choose another file with {use('out', slot='FILE')}, or free some "
        "space."
    )


# ------------------------------------------------------------------------------------------------------------- weights


def _write_weights(trained: Trained, form: str, target: Path, metadata: dict[str, str]) -> None:
    save = weights.save_safetensors
    if form == "torchvision":
        spec, save = trained.config.recipe.model, weights.save_torch
        # Refuse what torchvision cannot build: weights would be wrong there, or not load.
        if difference := entry_of(spec.name)[1].why_not_torchvision(spec, trained.channels):
            raise ConfigError(
                f"torchvision cannot build {shown_name(spec)}: {difference}. Use {use('format', 'safetensors')} "
                "or onnx."
            )
    try:
        save(trained.model.state_dict(), target, metadata)
    except (OSError, RuntimeError, SafetensorError) as error:  # the writers raise these when the disk is full
        raise unwritable(target, error) from None
