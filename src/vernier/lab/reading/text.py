"""Words and rows for a terminal: the result of a study's analysis, and of a check against a baseline."""

from vernier.records.study import CheckResult, Component, DeviceVerdict, StudyAnalysis, VarianceSplit
from vernier.references import command, use

SHOWN_NOTES = 8


def _span(component: Component, unit: str = " %") -> str:
    if component.low is None or component.high is None:
        return f"{component.value:.2f}{unit} (no interval)"
    digits = 2 if component.high - component.low >= 0.02 else 4
    return f"{component.value:.{digits}f}{unit} ({component.low:.{digits}f} to {component.high:.{digits}f})"


def _between_devices(component: Component) -> str:
    """The spread between devices; in words where that between repeats hides it."""
    if component.value > 0:
        return _span(component)
    most = f" (at most {component.high:.2f} %)" if component.high else ""
    return f"none visible beside the spread of the repeats{most}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def study_lines(result: StudyAnalysis) -> list[str]:
    """Everything but the list of devices."""
    repeats, variation = result.repeats_per_device, result.variation_percent
    count, simulated = result.devices_measured, "SIMULATED " if result.simulated else ""
    times = str(repeats.most) if repeats.least == repeats.most else f"{repeats.least} to {repeats.most}"
    lines = [
        f"{result.workload or 'study'}: {result.runs:,} runs on {count} {simulated}device{'s' if count > 1 else ''}, "
        f"{times} repeat{'' if times == '1' else 's'} each; "
        f"median {result.value_name} {result.median:g} {result.unit} ({result.what})",
        "",
        "variation                     over all runs   over device medians",
    ]
    for name, meaning in variation.definitions.items():
        runs, medians = _percent(variation.over_runs[name]), _percent(variation.over_device_medians[name])
        lines.append(f"  {name:<10} {runs:>28} {medians:>21}   {meaning}")
    lines += ["", *_variance_lines(result.variance), *_correlation_lines(result), ""]
    fence, sure = result.outliers.beyond_fence, result.outliers.sure
    lines.append(
        f"outliers   beyond the fences: {fence.slow} slow, {fence.fast} fast; certainly (family-wise error "
        f"below 5 %): {sure.slow} slow, {sure.fast} fast{_small_outliers(result)}"
    )
    lines += [*straggler_lines(result), *(f"note       {n}" for n in result.notes[:SHOWN_NOTES])]
    more = len(result.notes) - SHOWN_NOTES
    return [*lines, f"note       {more} more ({command('study analyze', json=True)} lists all)"] if more > 0 else lines


def straggler_lines(result: StudyAnalysis) -> list[str]:
    """What the slowest device costs, and what removing the slow ones would gain."""
    cost = result.straggler
    lines = []
    if result.devices_measured > 1:
        lines.append(
            f"straggler  synchronous training over all devices waits for {cost.slowest}: {cost.cost:.3f}x the "
            f"step time of the median device; the slowest single run took {cost.slowest_run_over_median:.2f}x"
        )
    if result.pull:
        floor = f" (certainly slow by {result.matter_percent:g} % or more)" if result.matter_percent is not None else ""
        return [*lines, f"remove     {', '.join(result.pull)}{floor}", f"           {removal_sentence(result)}"]
    return [*lines, f"remove     no device{_why_none(result)}"]


def _small_outliers(result: StudyAnalysis) -> str:
    """How many of the certain ones do not matter."""
    small = sum(bool(d.verdict) and d.matters is False for d in result.devices)
    return f", of which {small} by less than {result.matter_percent:g} %" if small else ""


def _why_none(result: StudyAnalysis) -> str:
    if result.matter_percent is None or result.devices_measured < 2:
        return ""
    if any(d.sure_slow and d.matters is False for d in result.devices):
        return f": those that are certainly slow lose less than {result.matter_percent:g} %, which {use('matter')} sets"
    return f" (certainly slow by {result.matter_percent:g} % or more: none)"


def removal_sentence(result: StudyAnalysis) -> str:
    """What synchronous training would gain without the devices to remove."""
    count, cost = len(result.pull), result.straggler
    devices, rest = "this device" if count == 1 else f"these {count} devices", cost.after_pulling
    now, then = (100 * (c - 1) for c in (cost.cost, rest.cost))
    if f"{now:.1f}" == f"{then:.1f}":
        return f"Without {devices} synchronous training would still lose {then:.1f} % by waiting for {rest.slowest}."
    return f"Without {devices} synchronous training would lose {then:.1f} % instead of {now:.1f} %."


def _variance_lines(variance: VarianceSplit) -> list[str]:
    parts = [("all runs", variance.all_runs)]
    if variance.runs_set_aside:
        parts.append((f"without {variance.runs_set_aside} disturbed runs", variance.undisturbed_runs))
    return [
        f"spread     {name}: between devices {_between_devices(p.between_devices)}, between repeats "
        f"{_span(p.between_repeats)}"
        + (f"; devices' share of the variance {_span(share, '')}" if (share := p.share_between_devices).value else "")
        for name, p in parts
        if p is not None
    ] or [f"spread     not split: {variance.missing}"]


def _correlation_lines(result: StudyAnalysis) -> list[str]:
    correlation, parts = result.correlation, []
    for sensor, value in correlation.pearson[correlation.value].items():
        if sensor == correlation.value or sensor in correlation.not_measured:
            continue
        rank = correlation.spearman[correlation.value][sensor]
        parts.append(f"{sensor} none (constant)" if value is None else f"{sensor} {value:+.3f} (rank {rank:+.3f})")
    missing = f"; not measured: {', '.join(correlation.not_measured)}" if correlation.not_measured else ""
    return [f"correlates {result.value_name} with {', '.join(parts) or 'nothing'}{missing}"]


def verdict_in_words(device: DeviceVerdict) -> str:
    """One device's verdict: certain, possible, or nothing unusual."""
    if device.verdict:
        host = ", as its whole host" if device.whole_host else ""
        return f"certainly {device.verdict}{host}{', too little to matter' if device.matters is False else ''}"
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
            "chance it is normal": _chance(d),
            "verdict": verdict_in_words(d) if result.devices_measured > 1 else "nothing to compare it with",
        }
        for d in result.devices[:most]
    ]


def check_lines(result: CheckResult) -> list[str]:
    """One verdict per device, then one for the machine."""
    lines = []
    for device in result.devices:
        verdict = "accepted" if device.accepted else f"REJECTED: {'; '.join(device.reasons)}"
        hints = f" [unusual: {', '.join(device.unusual)}]" if device.unusual else ""
        remarks = "".join(f"; {remark}" for remark in device.remarks)
        lines.append(
            f"{device.device}: {verdict}{remarks} ({device.median:g} {result.unit}, limit {device.limit:g}){hints}"
        )
    simulated = "SIMULATED " if result.simulated else ""
    lines.append(
        f"{simulated}machine {'accepted' if result.accepted else 'rejected'}; "
        f"false alarms {100 * result.false_alarms:g} %"
        + (
            f"; slower by less than {result.matter_percent:g} % is accepted ({use('matter')})"
            if result.matter_percent
            else ""
        )
    )
    return lines + [f"note: {n}" for n in result.notes]
