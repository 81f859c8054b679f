"""`vernier doctor`: one screen about this machine."""

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.cli.flags import DeviceFlag, JsonFlag, QuietFlag, Switch
from vernier.cli.launching import load_torch, sigterm_as_interrupt
from vernier.cli.output import inform, print_result, set_quiet
from vernier.clock import utc_stamp
from vernier.cores import allowed_cores
from vernier.errors import EXIT_DONE, ConfigError, did_you_mean

if TYPE_CHECKING:
    from vernier.devices.base import Ability
    from vernier.measure.machine.doctor import DevicesPage, Examination, Probe
    from vernier.measure.machine.trials import TriedDevice

DECODE_S = 1.5
WIDTH = 80
"""Columns of the page of --devices."""


def doctor(
    *,
    probe: bool = True,
    seconds: float = 10.0,
    devices: Switch = False,
    device: DeviceFlag = None,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Show what this machine can do: devices, precisions, modes, speed, and how to install missing packages.

    The speed test trains a ResNet-50 at 224 pixels on random images; it is a probe, not a benchmark. --devices tries
    every device instead, each trial in a process of its own with a time limit, and prints one page to send to us.

    Args:
        probe: Run the speed test; --no-probe leaves it out.
        seconds: Length of the speed test, in seconds.
        devices: Try what works on each device: training in every precision, evaluation, compilation, two processes,
            copies and events. Takes one to three minutes per kind of device.
        device: With --devices: try this kind of device only.

    Examples:
        vernier doctor
        vernier doctor --no-probe
        vernier doctor --devices > devices.txt
    """
    set_quiet(quiet)
    if not 0 < seconds <= 600:
        raise ConfigError(f"--seconds {seconds:g}: use more than 0 and at most 600, or --no-probe.")
    if devices:
        return _print_tried_devices(device, json)
    if device is not None:
        raise ConfigError(f"--device {device} belongs to --devices: vernier doctor --devices --device {device}.")
    from vernier.measure.machine.doctor import examine

    load_torch()
    examination = examine()
    if probe:
        examination = replace(examination, probe=_measure(seconds))
    print_result(examination, json, _screen)
    return EXIT_DONE


def _print_tried_devices(device: str | None, json: bool) -> int:
    """Try the devices, and print the page. PyTorch is loaded by the trials only: a driver may end its process."""
    from vernier.devices import kinds, unloadable_plugins
    from vernier.measure.machine.doctor import DevicesPage, describe_machine
    from vernier.measure.machine.environment import read_variables, read_versions
    from vernier.measure.machine.trials import try_devices

    if device is not None and device not in kinds():
        if why := unloadable_plugins().get(device):
            raise ConfigError(f"--device {device}: {why}")
        raise ConfigError(f"--device {device!r} is not known. {did_you_mean(device, kinds())}")
    names = (device,) if device else tuple(kinds())
    with sigterm_as_interrupt():
        tried = tuple(try_devices(names, lambda trial: inform(f"trying {trial} ...")))
    if device is not None and not tried:
        raise ConfigError(f"--device {device} is not on this machine; without it every device is tried.")
    page = DevicesPage(
        date=utc_stamp(),
        machine=describe_machine(),
        versions=read_versions(),
        variables=read_variables(),
        unusable=unloadable_plugins(),
        tried=tried,
        absent=tuple(name for name in names if name not in {one.device for one in tried}),
    )
    print_result(page, json, _page)
    return EXIT_DONE


def _page(page: "DevicesPage") -> list[str]:
    """One page of 80 columns, without colour."""
    machine, versions = page.machine, page.versions
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines = [
        *_entry("devices", f"of {machine.host}, tried {page.date}"),
        *_entry("versions", packages),
        *_entry("system", f"{machine.system}; {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB"),
        *_entry("processor", ", ".join(machine.instructions) or "instruction sets unknown"),
        *_entry("driver", f"NVIDIA {machine.nvidia_driver}" if machine.nvidia_driver else "no NVIDIA driver"),
        *_entry("variables", " ".join(f"{name}={value}" for name, value in page.variables.items()) or "none"),
        *(line for name, why in page.unusable.items() for line in _entry("unusable", f"{name}: {why}")),
    ]
    for device in page.tried:
        lines += ["", *_entry(device.device, _describe_device(device))]
        for trial in device.trials:
            first, *rest = textwrap.wrap(trial.note, WIDTH - 36) or [""]
            lines.append(f"  {trial.name:<14} {trial.outcome:<8} {trial.seconds:>5.0f} s  {first}".rstrip())
            lines += [f"{'':36}{line}" for line in rest]
    if page.absent:
        lines += ["", *_entry("not here", ", ".join(page.absent))]
    return [*lines, "", *_entry("seconds", "are those of a trial's whole process, start-up included")]


def _describe_device(device: "TriedDevice") -> str:
    info = device.info
    if info is None:
        return "could not be asked what it is"
    memory = f", {info.memory_bytes / 2**30:.0f} GiB" if info.memory_bytes else ""
    capability = f", capability {info.capability}" if info.capability else ""
    return f"{info.index}: {info.name}{memory}{capability}, {info.uuid or 'no UUID'}; {device.about}"


def _entry(label: str, text: str) -> list[str]:
    """A labelled paragraph of the page."""
    return textwrap.wrap(f"{label:<10} {text}", WIDTH, subsequent_indent=" " * 11, break_on_hyphens=False)


def _measure(seconds: float) -> "Probe":
    import torch

    from vernier.devices import resolve
    from vernier.engine.measured.decode_probe import probe_decoding
    from vernier.measure.machine.doctor import Probe
    from vernier.measure.machine.probe import probe_training

    device = resolve("auto")
    torch.set_num_threads(len(allowed_cores()))
    device.prepare()
    precisions = [p for p in ("fp32", "bf16") if not device.refuse(p, "eager", allow_slow=False)]
    inform(f"measuring for about {seconds + DECODE_S:.0f} s (--no-probe leaves it out) ...")
    training = tuple(probe_training(device, precision, seconds / len(precisions)) for precision in precisions)
    return Probe(training=training, decoding=probe_decoding(DECODE_S))


def _screen(examination: "Examination") -> list[str]:
    machine, versions = examination.machine, examination.versions
    memory, available, free = (
        size / 2**30 for size in (machine.memory_bytes, machine.memory_available_bytes, machine.disk_free_bytes)
    )
    threads = ", ".join(f"{k}={v}" for k, v in examination.threads.items() if k != "compute" and v is not None)
    lines = [
        f"Vernier {versions['vernier']}   Python {versions['python']}   torch {versions['torch']}",
        f"machine    {machine.host}: {machine.cores} cores, load {machine.load:.1f}; {memory:.1f} GiB of memory, "
        f"{available:.1f} available; {free:.0f} GiB free on this disk",
        f"processor  {', '.join(machine.instructions) or 'instruction sets unknown'}; NVIDIA driver: "
        f"{machine.nvidia_driver or 'none'}",
        f"threads    {examination.threads['compute']} for computing{'; ' + threads if threads else ''}",
    ]
    for kind in dict.fromkeys(d.device for d in examination.devices):
        names = [d.name for d in examination.devices if d.device == kind]
        lines += _device_lines(kind, names, [a for a in examination.abilities if a.device == kind])
    lines += [f"unusable   {name}: {why}" for name, why in examination.unusable.items()]
    lines += _speed_lines(examination.probe)
    installed = [part.extra for part in examination.extras if not part.missing]
    missing = [part.extra for part in examination.extras if part.missing]
    lines += [
        f"folders    cache {machine.cache}, data sets {machine.data}, runs ./runs unless --out says otherwise",
        f"extras     {', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else ""),
        *(f"{'' if i else 'advice':<10} {line}" for i, line in enumerate(examination.advice)),
        "next       vernier train             trains on built-in data, about a minute on two cores",
        "           vernier bench infer       measures this machine",
    ]
    return lines


def _device_lines(kind: str, names: list[str], answers: "list[Ability]") -> list[str]:
    """A kind of device: its names, one row per mode, and each reason once."""
    lines = [f"device     {kind}: {len(names)} x {', '.join(sorted(set(names)))}"]
    for mode in dict.fromkeys(a.mode for a in answers):
        cells = "   ".join(f"{a.precision} {a.verdict:<8}" for a in answers if a.mode == mode)
        lines.append(f"           {mode:<8} {cells}".rstrip())
    reasons = dict.fromkeys(f"{a.why}: {a.instead}" for a in answers if a.why)
    return lines + [f"           - {why}" for why in reasons]


def _speed_lines(probe: "Probe | None") -> list[str]:
    if probe is None:
        return ["speed      not measured (--no-probe)"]
    lines = [
        f"speed      ResNet-50 training on {t.device}, {t.precision}, batch {t.batch}: {t.images_per_s:.3g} img/s "
        f"({t.slowest:.3g} to {t.fastest:.3g} over {t.steps} steps; no data loading)"
        for t in probe.training
    ]
    decoding = probe.decoding
    return [
        *lines,
        f"           JPEG to training image: {decoding.images_per_s_per_core:.0f} img/s per core "
        f"({decoding.slowest:.0f} to {decoding.fastest:.0f} over {decoding.rounds} rounds; {decoding.images})",
    ]
