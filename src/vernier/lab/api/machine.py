"""What this machine can do: `doctor`. The examination is `lab.machine`'s."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import load_torch, sigterm_as_interrupt, unchanged_torch
from vernier.cores import allowed_cores
from vernier.errors import ConfigError, did_you_mean
from vernier.lab.requests.machine import Doctor
from vernier.references import command, given, use
from vernier.requests.training import Train
from vernier.requests.values import seconds

if TYPE_CHECKING:
    from vernier.lab.machine.doctor import DevicesPage, Examination, Probe

DECODE_S = 1.5


def examine_machine(request: Doctor, session: Session) -> "Examination | DevicesPage":
    """Examine this machine, or test its devices."""
    if request.test_devices:
        return _test_devices(request.device, session)
    if request.device is not None:
        test = command("doctor", test_devices=True, device=request.device)
        raise ConfigError(f"{given('machine.device', request.device)} chooses which device is tested: {test}.")
    load_torch(quiet=session.quiet)
    from vernier.lab.machine.doctor import examine

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
    from vernier.lab.machine.doctor import Probe
    from vernier.lab.machine.probe import probe_training
    from vernier.lab.measured.decode_probe import probe_decoding

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
    from vernier.lab.machine.doctor import DevicesPage, describe_machine
    from vernier.lab.machine.trials import try_devices
    from vernier.measure.environment import read_variables, read_versions

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


doctor = function(Doctor, examine_machine, "doctor")
