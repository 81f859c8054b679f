"""What there is: recipes and models, and what this machine can do. `list_recipes`, `list_models` and `doctor`."""

import fnmatch
from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.cores import allowed_cores
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.references import command, given, use
from vernier.requests.catalog import Doctor, Models, Recipes
from vernier.requests.training import Train
from vernier.requests.values import seconds

from .functions import function
from .runs import Records
from .session import Session
from .starting import load_torch, sigterm_as_interrupt, unchanged_torch

if TYPE_CHECKING:
    from vernier.measure.machine.doctor import DevicesPage, Examination, Probe
    from vernier.recipes import RecipeRow

DECODE_S = 1.5


# ------------------------------------------------------------------------------------------------- recipes and models


def recipe_rows(request: Recipes, session: Session, name: str | None = None) -> "Records[RecipeRow]":
    """The built-in recipes, or the one of a name; with estimated hours on one device if that was asked for."""
    from vernier import recipes

    if request.convert and request.device_hours is None:
        raise ConfigError(f"{given('convert', True)} needs {use('device_hours', slot='RUN')}.")
    if name is not None:
        recipes.get(name)
    rows = Records(row for row in recipes.table() if name in (None, row.name))
    return rows if request.device_hours is None else _with_hours(rows, request.device_hours, request.convert, session)


def _with_hours(rows: "Records[RecipeRow]", run_or_rate: str, convert: bool, session: Session) -> "Records[RecipeRow]":
    """Add the estimated hours on one device, and report what they are based on."""
    from vernier import recipes
    from vernier.measure.planning.conversion import conversion_error
    from vernier.measure.planning.workload import hours_and_range, speed_of

    speed, basis = speed_of(run_or_rate, convert=convert)
    session.warn(
        f"Device hours are an ESTIMATE, {basis.text}: {conversion_error()}. Training steps only, no evaluation, no "
        "scaling losses."
    )
    if basis.ran is not None:
        session.warn(f"what ran: {basis.ran.line()}")
    estimated: Records[RecipeRow] = Records()
    for row in rows:
        recipe = recipes.get(row.name)
        hours, (low, high) = hours_and_range(recipe, recipes.train_images(recipe), speed, basis)
        estimated.append(replace(row, estimated_device_hours=hours, estimated_device_hours_range=(low, high)))
    return estimated


@frozen
class ModelRow:
    """A model: its parameters, and its cost for one image of `input_px` squared, forward, in multiply-accumulates."""

    name: str
    family: str
    parameters: int
    gmac: float
    input_px: int
    about: str


def model_rows(request: Models, _: Session) -> Records[ModelRow]:
    """The models whose name fits the pattern. Raises ConfigError for a name that does not exist."""
    from vernier.models import describe, info

    pattern = request.pattern
    every = describe() if is_pattern(pattern) else [info(pattern)]
    return Records(
        ModelRow(
            name=each.name,
            family=each.family,
            parameters=each.params,
            gmac=round(each.gmac, 3),
            input_px=each.input_px,
            about=each.summary,
        )
        for each in every
        if fnmatch.fnmatchcase(each.name, pattern)
    )


def is_pattern(text: str) -> bool:
    """Whether a text stands for several names."""
    return any(character in text for character in "*?[")


# -------------------------------------------------------------------------------------------------------------- doctor


def examine_machine(request: Doctor, session: Session) -> "Examination | DevicesPage":
    """Examine this machine, or test its devices."""
    if request.test_devices:
        return _test_devices(request.device, session)
    if request.device is not None:
        test = command("doctor", test_devices=True, device=request.device)
        raise ConfigError(f"{given('machine.device', request.device)} chooses which device is tested: {test}.")
    load_torch(quiet=session.quiet)
    from vernier.measure.machine.doctor import examine

    examination, words = examine(), type(session.words)(Train)  # what a device can do is of use when training
    examination = replace(
        examination,
        abilities=tuple(replace(each, instead=words.word(each.instead)) for each in examination.abilities),
        advice=tuple(map(session.word, examination.advice)),
    )
    return replace(examination, probe=_measure(seconds(request.time), session)) if request.probe else examination


def _measure(length_s: float, session: Session) -> "Probe":
    import torch

    from vernier.devices import resolve
    from vernier.engine.measured.decode_probe import probe_decoding
    from vernier.measure.machine.doctor import Probe
    from vernier.measure.machine.probe import probe_training

    device = resolve("auto")
    precisions = [p for p in ("fp32", "bf16") if not device.refuse(p, "eager", allow_slow=False)]
    session.say(f"measuring for about {length_s + DECODE_S:.0f} s ({use('probe', False)} omits it) ...")
    with unchanged_torch():
        torch.set_num_threads(len(allowed_cores()))
        device.prepare()
        training = tuple(probe_training(device, precision, length_s / len(precisions)) for precision in precisions)
        return Probe(training=training, decoding=probe_decoding(DECODE_S))


def _test_devices(device: str | None, session: Session) -> "DevicesPage":
    """Try the devices. PyTorch is loaded by the trials only: a driver may end its process."""
    from vernier.clock import utc_stamp
    from vernier.devices import kinds, unloadable_plugins
    from vernier.measure.machine.doctor import DevicesPage, describe_machine
    from vernier.measure.machine.environment import read_variables, read_versions
    from vernier.measure.machine.trials import try_devices

    if device is not None and device not in kinds():
        why = unloadable_plugins().get(device)
        reason = f": {why}" if why else f" is not known. {did_you_mean(device, kinds())}"
        raise ConfigError(f"{given('machine.device', device)}{reason}")
    names = (device,) if device else tuple(kinds())
    with sigterm_as_interrupt():
        tried = tuple(try_devices(names, lambda trial: session.say(f"trying {trial} ...")))
    if device is not None and not tried:
        raise ConfigError(
            f"{given('machine.device', device)} is not on this machine; without it every device is tried."
        )
    return DevicesPage(
        date=utc_stamp(),
        machine=describe_machine(),
        versions=read_versions(),
        variables=read_variables(),
        unusable=unloadable_plugins(),
        tried=tried,
        absent=tuple(name for name in names if name not in {one.device for one in tried}),
    )


list_recipes = function(Recipes, recipe_rows, "list_recipes")
list_models = function(Models, model_rows, "list_models")
doctor = function(Doctor, examine_machine, "doctor")
