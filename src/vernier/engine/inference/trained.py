"""A trained model, ready to be used: from a run directory, a bare checkpoint, an exported file, or anybody's weights.

`load_model` takes any of them. Which files a checkpoint has is `training.checkpoints`'s business, which names a weights
file uses `models.weights`', what a file says about itself `model_file`'s, how images of weights of others are prepared
`preparation`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from vernier.config import Config, Recipe, config_from_tree, differences, names_code, override, own_references
from vernier.config.migrations import migrated
from vernier.config.settings import Optim, optimizers
from vernier.data.sources.values import read_lines
from vernier.devices import Device
from vernier.engine.build import build_model, build_network, local_torch_device, prepare_device
from vernier.engine.starting_weights import describe_weights, weights_file
from vernier.engine.training.checkpoints.contents import read_state, weights_for_use
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import info, is_detector, names, weights
from vernier.records.run import EngineReport, EvalResult, ModelFile
from vernier.references import command, given, use
from vernier.store import CheckpointDir, RunDir
from vernier.tasks import task_of
from vernier.wording import plural

from .model_file import describe, kind_of, network_formats, open_network, read_description
from .preparation import DEFAULT, foreign_config, published_as


@frozen
class Trained:
    """A model with its weights, the configuration and classes it was trained with, and where the weights are from."""

    model: nn.Module
    config: Config
    classes: tuple[str, ...]
    device: Device
    origin: str
    step: int | None
    averaged: bool
    channels: int
    notes: tuple[str, ...] = ()
    named: bool = True
    """False: `classes` are only the numbers of the outputs, because the weights came without names."""
    prepared: str = ""
    """How images are prepared for the network, and who says so, in words."""
    takes_pixels: bool = False
    """The network takes uint8 pixels and normalises them itself."""
    own_data: str = ""
    """The data it was trained on, as it was named; empty where that is not known."""
    own_fingerprint: str = ""
    """The fingerprint of its training split, wherever the data lies now; empty where that is not known."""
    runtime: str = ""
    """What runs the network of a file, such as onnxruntime; empty for a network of this program."""
    engine: EngineReport | None = None
    """How another engine than PyTorch was checked, measured and chosen; None where none was requested."""
    checkpoint: Path | None = None
    result: EvalResult | None = None
    """The last evaluation before these weights were written, at `result_step`."""
    result_step: int | None = None
    ran: str = ""
    """What ran when these weights were trained, in one line; empty where nobody recorded it."""


Change = Callable[[Config], Config]


def _unchanged(config: Config) -> Config:
    return config


@frozen
class ModelChoice:
    """Which model to load: of a run, a checkpoint, an exported file, or weights of others for the network `model`.

    `changed` may alter the settings, but not the network where run or file say what it is. `class_names` and
    `names_from_data` (the classes of the configured data) are for weights that come without names; without either,
    classes are numbers. `split` is the part of the data in which to look for photographs and names.
    """

    path: Path
    model: str | None = None
    which: str = "latest"
    averaged: bool | None = None
    changed: Change = _unchanged
    class_names: tuple[str, ...] | None = None
    names_from_data: bool = False
    split: str | None = None


def load_model(choice: ModelChoice) -> Trained:
    """The chosen model, ready to be used. Raises ConfigError where it cannot be, RunFailed for weights that are NaN."""
    path, which = choice.path, choice.which
    if path.is_file():
        if which != "latest":
            raise ConfigError(f"{given('which', which)} is for runs; {path} is one file. Omit {given('which')}.")
        return _load_network(choice, kind) if (kind := kind_of(path)) in network_formats() else _load_weights(choice)
    if choice.model is None and choice.class_names is None:
        notes: list[str] = []
        trained = _load_checkpoint(_find_checkpoint(path, which, notes.append), choice)
        return replace(trained, notes=(*trained.notes, *notes))
    name = "model" if choice.model is not None else "classes"
    if not path.exists():
        raise ConfigError(f"The file {path} does not exist. Give a .safetensors, .pth, .pt or .th file.")
    raise ConfigError(f"{given(name)} is for weights files; {path} is a folder, and a run has its own. Omit it.")


# ---------------------------------------------------------------------------------------------------------------- runs


def _load_checkpoint(checkpoint: CheckpointDir, choice: ModelChoice) -> Trained:
    """The model of a checkpoint whose hashes were checked."""
    state = read_state(checkpoint)
    # The processes of the training are not those that use the model.
    own = override(config_from_tree(state.config), "machine.procs", 1)
    config = changed_but_for_the_model(own, choice.changed)
    device, _ = prepare_device(config)
    outputs = task_of(config.recipe).outputs(len(state.classes))
    model = build_model(config, outputs, state.channels, local_torch_device(device))
    tensors, used_average = weights_for_use(checkpoint, averaged=choice.averaged)
    weights.refuse_not_finite(tensors, str(checkpoint.path))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        # PyTorch names the class in the first line, and in the second one a tensor that does not fit.
        first = str(error).strip().splitlines()[:2][-1].strip()
        raise ConfigError(f"{checkpoint.path} does not hold the weights of its own network: {first}") from None
    return Trained(
        model=model,
        config=config,
        classes=state.classes,
        device=device,
        origin=str(checkpoint.path),
        step=checkpoint.step,
        averaged=used_average,
        channels=state.channels,
        prepared=_preparation(own.recipe, config.recipe, "as in training"),
        own_data=own.recipe.data.source,
        own_fingerprint=state.data_fingerprint,
        checkpoint=checkpoint.path,
        result=state.progress.result,
        result_step=state.progress.last_eval_step,
    )


def changed_but_for_the_model(own: Config, changed: Change) -> Config:
    """The settings of a trained model after a change. Raises ConfigError if that changes the model itself."""
    config = changed(own)
    if config.recipe.model != own.recipe.model:
        name = next(iter(differences(own.recipe.model, config.recipe.model)), "name")
        raise ConfigError(
            f"A trained model cannot be changed by {given(f'model.{name}')}. Settings of data, eval and machine can be "
            "changed."
        )
    return config


def _preparation(own: Recipe, recipe: Recipe, origin: str) -> str:
    """How images are prepared, with its origin: the model's own preparation, or one that the user set."""
    now, before = (task_of(each).describe_preparation() for each in (recipe, own))
    return f"{now} ({origin if now == before else 'changed by settings'})"


# --------------------------------------------------------------------------------------------------------------- files


def config_of_file(about: ModelFile, path: Path, named: str | None = None) -> Config:
    """The configuration in a file's description; files of 0.2 only say how images are prepared.

    Raises ConfigError for a model that is code, unless a person `named` it: a file must not choose what runs here.
    """
    if isinstance(about.settings, dict):
        tree = migrated("config", about.settings, path)
        optim = tree.get("recipe", {}).get("optim", {})
        # A file can be used where the optimizer of its training is not installed: its own options are left out.
        if optim.get("name", Optim.name) not in optimizers():
            tree["recipe"] |= {"optim": {key: optim[key] for key in optim.keys() & Optim.__dataclass_fields__.keys()}}
        return _without_code(config_from_tree(tree), named, path)
    _refuse_code(about.model, named, path)
    config = foreign_config(about.model)
    data = replace(config.recipe.data, eval_px=about.eval_px, eval_short_side_px=about.eval_short_side_px)
    data = replace(data, mean=about.mean or data.mean, std=about.std or data.std)
    return replace(config, recipe=replace(config.recipe, data=data))


def _without_code(config: Config, named: str | None, path: Path) -> Config:
    """Without data and metrics that are code: whoever wrote the file would choose what runs here."""
    _refuse_code(config.recipe.model.name, named, path)
    recipe, code = config.recipe, {text for _, text, _ in own_references(config.recipe)}
    data = replace(recipe.data, source="" if recipe.data.source in code else recipe.data.source)
    policy = replace(recipe.eval, metrics=(), best="") if recipe.eval.metrics else recipe.eval
    return replace(config, recipe=replace(recipe, data=data, eval=policy))


def _refuse_code(model: str, named: str | None, path: Path) -> None:
    if names_code(model) and model != named:
        raise ConfigError(
            f"{path} names code as its model, {model}, which Vernier runs only if you name it: {use('model', model)}. "
            "That code runs on this machine with the arguments of the file's author."
        )


def _load_network(choice: ModelChoice, kind: str) -> Trained:
    """The network of a file with a whole model, run by the file's own runtime."""
    path = choice.path
    about = read_description(path)
    named = None if about is not None and choice.model == about.model else choice.model
    options = {"model": named, "ema": choice.averaged, "classes": choice.class_names}
    if name := next((name for name, value in options.items() if value is not None), None):
        raise ConfigError(f"{path} is a whole model with its own weights and classes. Omit {given(name)}.")
    if about is None:
        raise ConfigError(
            f"{path} does not describe itself: no classes and no image size. Vernier runs {kind} files that "
            f"{command('export')} wrote. Of third-party models it takes a weights file and {use('model', slot='NAME')}."
        )
    own = config_of_file(about, path, choice.model)
    config = changed_but_for_the_model(own, choice.changed)
    # Its own runtime runs it, on the CPU, whatever the settings are.
    config = replace(config, machine=replace(config.machine, device="cpu", channels_last=False))
    machine, data = config.machine, config.recipe.data
    own_way = {"mode": ("eager", machine.mode), "precision": ("fp32", machine.precision)}
    if other := next((given(f"machine.{key}", value) for key, (only, value) in own_way.items() if value != only), None):
        raise ConfigError(f"{path.name} is run by its own runtime in fp32; {other} is for runs and weights.")
    if data.eval_px != about.eval_px:
        raise ConfigError(
            f"{path.name} takes images of {about.eval_px} px and no others. Omit {given('data.eval_px', data.eval_px)}."
        )
    device, _ = prepare_device(config)
    network = open_network(path, kind)
    return replace(
        _described(about, path, own, config, network, device),
        notes=(f"run by {network.runtime}",),
        takes_pixels=about.pixels,
        runtime=network.runtime,
    )


def _described(about: ModelFile, path: Path, own: Config, config: Config, model: nn.Module, device: Device) -> Trained:
    """A trained model with what its file says about it."""
    return Trained(
        model=model,
        config=config,
        classes=about.classes,
        device=device,
        origin=str(path),
        step=about.step,
        averaged=about.averaged,
        channels=about.channels,
        prepared=_preparation(own.recipe, config.recipe, "as the file says"),
        own_data=own.recipe.data.source,
        own_fingerprint=about.data_fingerprint,
        result=about.result,
        result_step=about.result_step,
        ran=about.ran,
    )


def _load_weights(choice: ModelChoice) -> Trained:
    """The network of a weights file: the one that the file describes, or the chosen one for weights of others."""
    path, changed = choice.path, choice.changed
    file = weights.read_file(path, ema=choice.averaged)
    about = describe(file.metadata, path)
    if about is None:
        return _load_foreign(choice, file)
    if choice.model not in (None, about.model):
        raise ConfigError(
            f"{path} is the model {about.model}, not {choice.model}. Omit {given('model', choice.model)}."
        )
    if choice.class_names is not None:
        raise ConfigError(f"{path} contains the names of its {len(about.classes)} classes. Omit {given('classes')}.")
    own = config_of_file(about, path, choice.model)
    config = changed(own) if about.settings is None else changed_but_for_the_model(own, changed)
    device, _ = prepare_device(config)
    outputs = task_of(config.recipe).outputs(len(about.classes))
    network = build_model(config, outputs, about.channels, local_torch_device(device))
    report = weights.load_read(file, network)
    notes = tuple(note for note in report.notes if about.settings is None or note in file.notes)
    return replace(_described(about, path, own, config, network, device), notes=notes)


def _load_foreign(choice: ModelChoice, file: weights.FileWeights) -> Trained:
    """A catalogue model with the weights of a file of others. Raises ConfigError if they do not fit."""
    path, published = choice.path, published_as(choice.path)
    declared = next((name for key in ("model", "arch") if (name := file.metadata.get(key)) in names()), None)
    name = choice.model or (published.network if published else declared)
    if name is None:
        raise ConfigError(_which_network(path, file))
    if published is not None and published.network != name:
        published = None
    own = foreign_config(name, published)
    config = choice.changed(own)
    task, data = task_of(config.recipe, config.machine), config.recipe.data
    device, _ = prepare_device(config)
    torch_device = local_torch_device(device)
    outputs, channels = _head_and_channels(file.state, config)
    if len(data.mean) != channels or len(data.std) != channels:
        raise ConfigError(
            f"{path} takes images of {plural(channels, 'channel')}, data.mean and data.std have "
            f"{plural(len(data.mean), 'value')}: give {use('data.mean', slot='[...]')} and "
            f"{use('data.std', slot='[...]')} with {channels}."
        )
    network = build_model(config, outputs, channels, torch_device)
    source = task.open(choice.split or "val", whole=choice.split is None) if data.source else None
    report = weights.load_read(file, network)
    known = choice.class_names or (published.classes if published else ()) or None
    of_data = source.classes if source is not None and choice.names_from_data else None
    classes, named, note = _name_classes(outputs - task.outputs(0), known, of_data)
    origin = f"as published for {published.by}" if published else DEFAULT
    return Trained(
        model=network,
        config=config,
        classes=classes,
        device=device,
        origin=str(path),
        step=None,
        averaged=file.averaged,
        channels=channels,
        notes=tuple(filter(None, (describe_weights(str(path), report), note if choice.names_from_data else ""))),
        named=named,
        prepared=_preparation(own.recipe, config.recipe, origin),
    )


def _which_network(path: Path, file: weights.FileWeights) -> str:
    guess = weights.identify(file.state)
    hint = f": they look like {guess}" if guess else ""
    twin = f" (or {guess}-v1, the same shapes with another stride)" if f"{guess}-v1" in names() else ""
    return (
        f"{path} does not contain which model its weights are for. Give {use('model', slot='NAME')} "
        f"({command('models')} lists them){hint}{twin}."
    )


def _head_and_channels(state: Mapping[str, torch.Tensor], config: Config) -> tuple[int, int]:
    """How many outputs and input channels the weights are for; those of the catalogue where they do not say."""
    entry = info(config.recipe.model.name)
    outside = entry.layout.outside
    own, _ = weights.keep_names(state, ()) if outside else weights.translate(state, detector=entry.detector)
    head, stem = own.get(entry.layout.classifier_weight(own) or ""), entry.layout.first_weight(own)
    outputs = entry.classes if head is None else len(head) // entry.layout.boxes
    return outputs, 3 if stem is None else stem.shape[1]


def _name_classes(
    count: int, known: tuple[str, ...] | None, of_data: tuple[str, ...] | None
) -> tuple[tuple[str, ...], bool, str]:
    """Names for so many classes, whether they are more than numbers, and a note about where they are from."""
    if known is not None:
        if len(known) != count:
            raise ConfigError(f"The weights have {count:,} classes, and {len(known):,} names were given for them.")
        return known, True, ""
    if of_data is not None:
        if len(of_data) != count:
            raise ConfigError(
                f"The weights have {count:,} classes, the data has {len(of_data):,}. Omit {given('data.source')}, or "
                f"give {use('classes', slot='FILE')} with one name per line."
            )
        return of_data, True, f"class names taken from the data, in its order: output 0 is {of_data[0]}"
    numbers = tuple(map(str, range(count)))
    names_them = f"{use('classes', slot='FILE')} names them"
    return numbers, False, f"the weights contain no class names: they are called 0 to {count - 1}; {names_them}"


def read_class_names(path: Path) -> tuple[str, ...]:
    """The class names in a text file, one per line, in the order of the outputs."""
    try:
        classes = read_lines(path)
    except ConfigError as error:
        # The file was given as an option, which the error names.
        raise ConfigError(f"{given('classes', path)}: {error} Give a text file with one name per line.") from None
    if len(set(classes)) != len(classes) or not classes:
        twice = next((name for name in classes if classes.count(name) > 1), None)
        problem = f"contains {twice!r} twice" if twice else "is empty"
        raise ConfigError(f"{given('classes', path)} {problem}. Give one name per line, in the order of the outputs.")
    return classes


# --------------------------------------------------------------------------------------------------------- checkpoints


def _find_checkpoint(path: Path, which: str, say: Callable[[str], None] = lambda note: None) -> CheckpointDir:
    """A checkpoint directory, or the `which` checkpoint of a run; its hashes are checked.

    `say` is told of damaged checkpoints that are newer than the latest sound one.
    """
    if (path / "state.json").is_file():
        return CheckpointDir.open(path)
    run = RunDir.open(path)
    if which == "latest":
        damaged: list[str] = []
        checkpoint = run.checkpoints.newest(  # checks the hashes itself
            lambda passed, problems: damaged.append(f"{passed.path.name} is damaged ({'; '.join(problems)})")
        )
        if damaged and checkpoint is not None:
            say(f"{'; '.join(damaged)}: the weights are those of {checkpoint.path.name}, which is older")
    elif which == "best":
        checkpoint = run.checkpoints.best()
    else:
        checkpoint = next((c for c in run.checkpoints.committed() if str(c.step) == which), None)
    if checkpoint is None:
        steps = ", ".join(str(c.step) for c in run.checkpoints.committed()) or "none"
        state = "no sound checkpoint" if which == "latest" and steps != "none" else f"no {which} checkpoint"
        raise ConfigError(f"{path} has {state}. Checkpoints by step: {steps}.")
    # `newest` has compared the hashes of the latest one.
    return checkpoint if which == "latest" else CheckpointDir.open(checkpoint.path)


def checkpoint_steps(path: Path) -> list[str]:
    """The steps at which a run has checkpoints, in order."""
    steps = [str(c.step) for c in RunDir.open(path).checkpoints.committed()]
    if not steps:
        raise ConfigError(f"{path} has no checkpoint yet.")
    return steps


def create_network(
    name: str,
    path: Path | None = None,
    *,
    classes: int | None = None,
    channels: int | None = None,
    changed: Change = _unchanged,
) -> tuple[nn.Module, str]:
    """The network called `name`, and a note about its weights; `path` is a weights file of Vernier or of others.

    With `path` it has the file's classes and channels; for another number of `classes` its last layer is new. A
    detector has an output for the background besides. Raises ConfigError for an unknown name and for weights of
    another network.
    """
    background = int(is_detector(name))
    if path is None:
        config = changed(foreign_config(name))
        outputs = info(name).classes if classes is None else classes + background
        return build_network(config.recipe, outputs, channels or 3), ""
    if path.is_dir():
        raise ConfigError(f"{given('weights', path)} is a folder: give a file. Load a run as a model instead.")
    file = weights.read_file(weights_file(str(path)))
    about = describe(file.metadata, path)
    if about is not None and about.model != name:
        raise ConfigError(f"{path} says that it is {about.model}, not {name}.")
    config = changed(foreign_config(name) if about is None else config_of_file(about, path, name))
    outputs, own_channels = _head_and_channels(file.state, config)
    if channels not in (None, own_channels):
        raise ConfigError(
            f"{path} takes images of {plural(own_channels, 'channel')}, not {channels}. Omit "
            f"{given('in_channels', channels)}."
        )
    own_classes = len(about.classes) if about is not None else outputs - background
    new_head = classes not in (None, own_classes)
    network = build_network(config.recipe, classes + background if classes and new_head else outputs, own_channels)
    report = weights.load_read(file, network, reset_head=new_head)
    return network, describe_weights(str(path), report)
