"""Words and rows for a terminal: the result of a study's analysis, and of a check against a baseline."""

from vernier.lab.study.records import CheckResult, DeviceVerdict, StudyAnalysis
from vernier.references import command, use
from vernier.templates import lines_of, open_templates
from vernier.wording import plural

_SHOWN = 8
"""Notes, and devices to look at."""


def removal_sentence(result: StudyAnalysis) -> str:
    """What synchronous training would gain without the devices to remove."""
    count, cost = len(result.pull), result.straggler
    devices, rest = "this device" if count == 1 else f"these {count} devices", cost.after_pulling
    now, then = (100 * (c - 1) for c in (cost.cost, rest.cost))
    # Equal after rounding: "1.2 % instead of 1.2 %" would look like an error of ours.
    if f"{now:.1f}" == f"{then:.1f}":
        return f"Without {devices} synchronous training would still lose {then:.1f} % by waiting for {rest.slowest}."
    return f"Without {devices} synchronous training would lose {then:.1f} % instead of {now:.1f} %."


def verdict_in_words(device: DeviceVerdict) -> str:
    """One device's verdict: certain, possible, or nothing unusual."""
    if side := device.verdict or device.stands_out:
        whole = "cabinet" if device.whole_cabinet else "host" if device.whole_host else ""
        host = f", as its whole {whole}" if whole else ""
        small = ", too little to matter" if device.matters is False else ""
        return f"{f'certainly {side}' if device.verdict else f'stands out as {side}'}{host}{small}"
    # A device whose fastest run is as fast as the others was disturbed rather than slow.
    fastest = device.fastest_run_percent
    why = "" if fastest is None or device.beyond_fence != "slow" else f" (its fastest run: {fastest:+.1f} %)"
    return f"perhaps {device.beyond_fence}{why}" if device.beyond_fence else "not unusual"


def _chance(device: DeviceVerdict) -> str:
    return f"{min(1.0, 2 * min(device.p_slow, device.p_fast)):.2g}"


def study_rows(result: StudyAnalysis, most: int | None) -> list[dict[str, object]]:
    """The table of the devices, slowest first; all of them or the first `most`."""
    return [
        {
            "device": d.device,
            "repeats": d.repeats,
            f"{result.value_name} {result.unit}": float(f"{d.median:.6g}"),
            f"relative {result.value_name}": f"{d.normalised:.4f}",
            "95 % interval": "-" if d.low is None else f"{d.low:.4f} to {d.high:.4f}",
            "beyond fence": d.beyond_fence or "no",
            "chance, normal law": _chance(d),
            "verdict": verdict_in_words(d) if result.devices_measured > 1 else "nothing to compare it with",
        }
        for d in result.devices[:most]
    ]


_TEMPLATES = open_templates(__file__, command=command, use=use, plural=plural, removal_sentence=removal_sentence)


def study_lines(result: StudyAnalysis) -> list[str]:
    """Everything but the list of devices."""
    return lines_of(_TEMPLATES, "study.txt", {"result": result, "SHOWN": _SHOWN})


def check_lines(result: CheckResult) -> list[str]:
    """One verdict per device, then one for the machine."""
    return lines_of(_TEMPLATES, "check.txt", vars(result))
