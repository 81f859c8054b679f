"""A machine in words: one screen about what it can do, and one page about trials of its devices (`vernier doctor`)."""

import textwrap

from vernier.lab.machine.doctor import DevicesPage, Examination, Probe
from vernier.lab.machine.trials import TriedDevice
from vernier.references import command, given

WIDTH = 80
"""Columns of the page about devices."""


def devices_lines(page: DevicesPage) -> list[str]:
    """One page of 80 columns, without color."""
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


def _describe_device(device: TriedDevice) -> str:
    info = device.info
    if info is None:
        return "could not be identified"
    memory = f", {info.memory_bytes / 2**30:.0f} GiB" if info.memory_bytes else ""
    capability = f", capability {info.capability}" if info.capability else ""
    return f"{info.index}: {info.name}{memory}{capability}, {info.uuid or 'no UUID'}; {device.about}"


def _entry(label: str, text: str) -> list[str]:
    """A labelled paragraph of the page."""
    return textwrap.wrap(f"{label:<10} {text}", WIDTH, subsequent_indent=" " * 11, break_on_hyphens=False)


def machine_lines(examination: Examination) -> list[str]:
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
        lines += _device_lines(kind, names, examination)
    lines += [f"unusable   {name}: {why}" for name, why in examination.unusable.items()]
    lines += _speed_lines(examination.probe)
    installed = [part.extra for part in examination.extras if not part.missing]
    missing = [part.extra for part in examination.extras if part.missing]
    lines += [
        f"folders    cache {machine.cache}, data sets {machine.data}, runs ./runs by default",
        f"extras     {', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else ""),
        *(f"{'' if i else 'advice':<10} {line}" for i, line in enumerate(examination.advice)),
        f"next       {command('train')}             trains on built-in data, about a minute on two cores",
        f"           {command('bench infer')}       measures this machine",
    ]
    return lines


def _device_lines(kind: str, names: list[str], examination: Examination) -> list[str]:
    """A kind of device: its names, one row per mode, and each reason once."""
    answers = [a for a in examination.abilities if a.device == kind]
    lines = [f"device     {kind}: {len(names)} x {', '.join(sorted(set(names)))}"]
    for mode in dict.fromkeys(a.mode for a in answers):
        cells = "   ".join(f"{a.precision} {a.verdict:<8}" for a in answers if a.mode == mode)
        lines.append(f"           {mode:<8} {cells}".rstrip())
    reasons = dict.fromkeys(f"{a.why}: {a.instead}" for a in answers if a.why)
    return lines + [f"           - {why}" for why in reasons]


def _speed_lines(probe: Probe | None) -> list[str]:
    if probe is None:
        return [f"speed      not measured ({given('probe', False)})"]
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
