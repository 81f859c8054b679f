"""`vernier doctor`: one screen about this machine."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.cli.flags import JsonFlag
from vernier.cli.launching import load_torch
from vernier.cli.output import print_result, say
from vernier.cores import allowed_cores
from vernier.errors import EXIT_DONE, ConfigError

if TYPE_CHECKING:
    from vernier.devices.base import Ability
    from vernier.measure.machine.doctor import Examination, Probe

DECODE_S = 1.5


def doctor(*, probe: bool = True, seconds: float = 10.0, json: JsonFlag = False) -> int:
    """Show what this machine can do: devices, precisions, modes, speed, and how to install missing packages.

    The speed test trains a ResNet-50 at 224 pixels on random images; it is a probe, not a benchmark.

    Args:
        probe: Run the speed test; --no-probe leaves it out.
        seconds: Length of the speed test, in seconds.

    Examples:
        vernier doctor
        vernier doctor --no-probe
    """
    from vernier.measure.machine.doctor import examine

    if not 0 < seconds <= 600:
        raise ConfigError(f"--seconds {seconds:g}: use more than 0 and at most 600, or --no-probe.")
    load_torch()
    examination = examine()
    if probe:
        examination = replace(examination, probe=_measure(seconds))
    print_result(examination, json, _screen)
    return EXIT_DONE


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
    say(f"measuring for about {seconds + DECODE_S:.0f} s (--no-probe leaves it out) ...")
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
