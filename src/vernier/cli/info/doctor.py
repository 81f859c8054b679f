"""`vernier doctor`: one screen about this machine."""

import sys
from typing import Any

from vernier.cli.flags import JsonFlag
from vernier.cli.output import print_json, say
from vernier.cores import allowed_cores
from vernier.errors import EXIT_DONE, ConfigError

DECODE_S = 1.5


def doctor(*, probe: bool = True, seconds: float = 10.0, json: JsonFlag = False) -> int:
    """Tell in one screen what this machine can do: devices, precisions, modes, speed, what is missing and how to get it.

    The speed is a probe of about ten seconds, not a benchmark: forward, backward and update of a ResNet-50 at 224 pixels.

    Args:
        probe: Measure; --no-probe answers at once.
        seconds: How long to train for.
    """
    from vernier.measure.machine.doctor import examine

    if not 0 < seconds <= 600:
        raise ConfigError(f"--seconds {seconds:g}: use more than 0 and at most 600, or --no-probe.")
    found = examine()
    found["probe"] = _measured(seconds) if probe else None
    if json:
        print_json(found)
    else:
        sys.stdout.write("\n".join(_screen(found)) + "\n")
    return EXIT_DONE


def _measured(seconds: float) -> dict[str, Any]:
    import torch

    from vernier.devices import resolve
    from vernier.engine.measured.decode_probe import decoding_speed
    from vernier.measure.machine.probe import training_speed

    device = resolve("auto")
    torch.set_num_threads(len(allowed_cores()))
    device.prepare()
    tried = [p for p in ("fp32", "bf16") if not device.refuse(p, "eager", allow_slow=False)]
    say(f"measuring for about {seconds + DECODE_S:.0f} s (--no-probe leaves it out) ...")
    return {
        "training": [training_speed(device, precision, seconds / len(tried)) for precision in tried],
        "decoding": decoding_speed(DECODE_S),
    }


def _screen(found: dict[str, Any]) -> list[str]:
    machine, said = found["machine"], found["versions"]
    gib = {name: machine[f"{name}_bytes"] / 2**30 for name in ("memory", "memory_available", "disk_free")}
    threads = ", ".join(f"{k}={v}" for k, v in found["threads"].items() if k != "compute" and v is not None)
    listed = {d["device"]: [e for e in found["devices"] if e["device"] == d["device"]] for d in found["devices"]}
    lines = [
        f"Vernier {said['vernier']}   Python {said['python']}   torch {said['torch']}",
        f"machine    {machine['host']}: {machine['cores']} cores, load {machine['load']:.1f}; {gib['memory']:.1f} GiB of memory, "
        f"{gib['memory_available']:.1f} available; {gib['disk_free']:.0f} GiB free on this disk",
        f"threads    {found['threads']['compute']} for computing{'; ' + threads if threads else ''}",
    ]
    for name, members in listed.items():
        lines += _device(name, members, [a for a in found["abilities"] if a["device"] == name])
    lines += _speeds(found["probe"])
    present = [part["extra"] for part in found["extras"] if not part["missing"]]
    lines.append(f"extras     {', '.join(present) or 'none'}")
    return lines + [f"{'advice' if not place else '':<10} {line}" for place, line in enumerate(found["advice"])]


def _device(name: str, members: list[dict[str, Any]], answers: list[dict[str, str]]) -> list[str]:
    """A kind of device: what it is, a row for each mode, and each reason once."""
    names = ", ".join(sorted({str(m["name"]) for m in members}))
    lines = [f"device     {name}: {len(members)} x {names}"]
    for mode in dict.fromkeys(a["mode"] for a in answers):
        cells = "   ".join(f"{a['precision']} {a['verdict']:<8}" for a in answers if a["mode"] == mode)
        lines.append(f"           {mode:<8} {cells}".rstrip())
    reasons = dict.fromkeys(f"{a['why']}: {a['instead']}" for a in answers if a["why"])
    return lines + [f"           - {why}" for why in reasons]


def _speeds(probe: dict[str, Any] | None) -> list[str]:
    if probe is None:
        return ["speed      not measured (--no-probe)"]
    lines = []
    for one in probe["training"]:
        lines.append(
            f"speed      ResNet-50 training on {one['device']}, {one['precision']}, batch {one['batch']}: {one['images_per_s']:.3g} img/s "
            f"({one['slowest']:.3g} to {one['fastest']:.3g} over {one['steps']} steps; no data loading)"
        )
    read = probe["decoding"]
    lines.append(
        f"           JPEG to training image: {read['images_per_s_per_core']:.0f} img/s a core "
        f"({read['slowest']:.0f} to {read['fastest']:.0f} over {read['rounds']} rounds; {read['images']})"
    )
    return lines
