"""A study's results in words and rows for a terminal."""

from typing import Any

SHOWN_NOTES = 8


def _span(found: dict[str, float | None], unit: str = " %", digits: int = 2) -> str:
    if found["low"] is None:
        return f"{found['value']:.{digits}f}{unit} (no interval)"
    return f"{found['value']:.{digits}f}{unit} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def study_lines(found: dict[str, Any]) -> list[str]:
    """Everything but the list of devices."""
    repeats, cost = found["repeats_per_device"], found["straggler"]
    count, simulated = found["devices_measured"], "SIMULATED " if found["simulated"] else ""
    times = str(repeats["most"]) if repeats["least"] == repeats["most"] else f"{repeats['least']} to {repeats['most']}"
    lines = [
        f"{found['workload'] or 'study'}: {found['runs']:,} runs on {count} {simulated}device{'s' if count > 1 else ''}, {times} "
        f"repeat{'' if times == '1' else 's'} each; {found['what']}: median {found['median']:g} {found['unit']}",
        "",
        "variation                     over all runs   over device medians",
    ]
    for name, meaning in found["variation_percent"]["definitions"].items():
        runs, medians = (_percent(found["variation_percent"][k][name]) for k in ("over_runs", "over_device_medians"))
        lines.append(f"  {name:<10} {runs:>28} {medians:>21}   {meaning}")
    lines += ["", *_variance_lines(found["variance"]), *_correlation_lines(found["correlation"]), ""]
    fence, sure = found["outliers"]["beyond_fence"], found["outliers"]["sure"]
    lines.append(
        f"outliers   beyond the fences: {fence['slow']} slow, {fence['fast']} fast; sure: {sure['slow']} slow, {sure['fast']} fast"
    )
    if count > 1:
        lines.append(
            f"straggler  synchronous training over all devices takes {cost['cost']:.3f} times the median device's time "
            f"({cost['slowest']}); the slowest single run {cost['slowest_run_over_median']:.2f} times"
        )
    if found["pull"]:
        after = cost["after_pulling"]["cost"]
        lines.append(f"pull       {', '.join(found['pull'])}: then {after:.3f} times")
    else:
        lines.append("pull       no device")
    lines += [f"note       {n}" for n in found["notes"][:SHOWN_NOTES]]
    more = len(found["notes"]) - SHOWN_NOTES
    return [*lines, f"note       {more} more (--json has all)"] if more > 0 else lines


def _variance_lines(found: dict[str, Any]) -> list[str]:
    if found["missing"]:
        return [f"spread     not split: {found['missing']}"]
    aside = found["runs_set_aside"]
    parts = [("all runs", found["all_runs"])]
    if aside:
        parts.append((f"without {aside} disturbed runs", found["undisturbed_runs"]))
    return [
        f"spread     {name}: between devices {_span(p['between_devices'])}, between repeats {_span(p['between_repeats'])}; "
        f"devices' share of the variance {_span(p['share_between_devices'], '')}"
        for name, p in parts
    ]


def _correlation_lines(found: dict[str, Any]) -> list[str]:
    told = []
    for sensor, value in found["pearson"]["perf"].items():
        if sensor == "perf" or sensor in found["not_measured"]:
            continue
        rank = found["spearman"]["perf"][sensor]
        told.append(f"{sensor} none (constant)" if value is None else f"{sensor} {value:+.3f} (rank {rank:+.3f})")
    missing = f"; not measured: {', '.join(found['not_measured'])}" if found["not_measured"] else ""
    return [f"correlates performance with {', '.join(told) or 'nothing'}{missing}"]


def study_rows(found: dict[str, Any], most: int | None) -> list[dict[str, Any]]:
    """The devices, slowest first."""
    rows = found["devices"] if most is None else found["devices"][:most]
    return [
        {
            "device": d["device"], "repeats": d["repeats"], f"median {found['unit']}": float(f"{d['median']:.6g}"),
            "normalised": f"{d['normalised']:.4f}", "95 % interval": _interval(d), "beyond fence": d["beyond_fence"] or "",
            "chance it is ordinary": f"{min(d['p_slow'], d['p_fast'], 0.5) * 2:.2g}",
            "verdict": "slow" if d["sure_slow"] else "fast" if d["sure_fast"] else "",
        }
        for d in rows
    ]  # fmt: skip


def _interval(device: dict[str, Any]) -> str:
    return "-" if device["low"] is None else f"{device['low']:.4f} to {device['high']:.4f}"


def check_lines(found: dict[str, Any]) -> list[str]:
    """A verdict a device, then one for the machine."""
    lines = []
    for device in found["devices"]:
        said = "accepted" if device["accepted"] else f"REJECTED: {'; '.join(device['reasons'])}"
        hints = f" [unusual: {', '.join(device['unusual'])}]" if device["unusual"] else ""
        lines.append(
            f"{device['device']}: {said} ({device['median']:g} {found['unit']}, limit {device['limit']:g}){hints}"
        )
    simulated = "SIMULATED " if found["simulated"] else ""
    lines.append(
        f"{simulated}machine {'accepted' if found['accepted'] else 'rejected'}; false alarms {100 * found['false_alarms']:g} %"
    )
    return lines + [f"note: {n}" for n in found["notes"]]
