"""What a benchmark's rounds come to: one row an arm, for the terminal, for Markdown, and for whoever reads the JSON.

With several rounds the process is the unit: the interval is that of the rounds' mean step times, so what differs from process to
process counts. With one round it is the interval within that process, and the row says so.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vernier.measure.bench.arms import Round
from vernier.measure.bench.measuring import divided, phases, verdict
from vernier.measure.bench.serving import latency_figures
from vernier.measure.statistics.comparison import DEFAULT_TOLERANCE, Trace, compare
from vernier.measure.statistics.estimates import mean_estimate, rate_estimate
from vernier.measure.statistics.summary_checks import summarize
from vernier.measure.statistics.throughput import Window
from vernier.measure.telemetry.noise import describe_noise, worst_noise
from vernier.records.codec import decode, encode
from vernier.records.telemetry import Noise

TELLS_NOTHING = 10
"""An interval that reaches so many times the value says that nothing is known."""
SCALING_COLUMNS = ("img/s total", "per device", "times the base", "efficiency", "of that without exchange")
ARM_COLUMNS = ("batch", "precision", "mode", "procs", "threads", "exchange", "scenario", "load", "side")


def pooled(name: str, labels: Mapping[str, Any], rounds: Sequence[Round]) -> dict[str, Any]:
    """One arm over its rounds, as plain values with units in their names."""
    good = [r.result for r in rounds if r.arm == name and r.result["status"] == "ok"]
    row: dict[str, Any] = {"arm": name, **labels, "status": "ok", "rounds": len(good)}
    if not good:
        last = next(r.result for r in reversed(rounds) if r.arm == name)
        return {**row, "status": last["status"], "why": last.get("why")}
    row |= _served(good) if "queries" in good[0]["figures"] else _stepped(good)
    disturbed = worst_noise([decode(Noise, g["noise"]) for g in good if g.get("noise")])
    known = [g["peak_memory_bytes"] for g in good if g["peak_memory_bytes"] is not None]
    row |= {"crowded": _crowded(good), "compute_threads": (good[0].get("environment") or {}).get("compute_threads")}
    return {
        **row, "noise": describe_noise(disturbed) if disturbed else [], "disturbed": encode(disturbed), "method": good[0]["method"],
        "peak_memory_bytes": max(known, default=None),
    }  # fmt: skip


def _crowded(good: list[dict[str, Any]]) -> str | None:
    """Words for processes of which not each has a core; None where each has, or where they compute elsewhere."""
    about, processes = good[0].get("environment") or {}, good[0]["figures"].get("devices", 1)
    cores = (about.get("cpu") or {}).get("cores_logical")
    if about.get("device_kind") != "cpu" or not cores or processes <= cores:
        return None
    return f"{processes} processes share {cores} cores: as many devices would not"


def _stepped(good: list[dict[str, Any]]) -> dict[str, Any]:
    images, devices = good[0]["images_per_step"], good[0]["figures"]["devices"]
    every = [s for g in good for s in g["raw"]["step_s"]]
    waits = [w for g in good for w in g["raw"]["wait_s"]]
    window = Window(samples=images * len(every), wall_s=sum(every), data_wait_s=sum(waits), devices=devices)
    total = _rate(good, images)
    found: dict[str, Any] = {
        "images_per_s_total": total,
        "images_per_s_per_device": {**total, **divided(total, devices)},
        "devices": devices,
        "compute_only_images_per_s_total": window.compute_samples_per_s,
        "data_wait_share": window.data_wait_share,
        "verdict": verdict(window.data_wait_share),
        "step_s": encode(summarize(every, unit="s", of="step, all devices")),
        "phases": _phases([g["figures"]["phases"] for g in good if g["figures"]["phases"]]),
        "warmup": [g["figures"]["warmup"] for g in good],
        "steady": all(g["figures"]["warmup"]["steady"] for g in good),
        "reached_precision": _all_or_none([g["figures"]["reached_precision"] for g in good]),
        "flops": _flops(good, total["value"] / devices),
        "joules_per_image": _joules(good),
        "compile_s": _compile(good),
    }
    if "latency_s" in good[0]["figures"]:
        found["latency_s"] = latency_figures(every, of=good[0]["figures"]["latency_s"]["of"])
    return found


def _phases(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Where the time of a step goes, over all processes; None where no step was split."""
    if not found:
        return None
    means = phases({name: [f["seconds"].get(name, 0.0) for f in found] for name in found[0]["seconds"]})
    return means and {**means, "steps": sum(f["steps"] for f in found)}


def _flops(good: list[dict[str, Any]], images_per_s: float) -> dict[str, Any] | None:
    """Arithmetic a second at this rate of one device, beside the median of what matrix products reached in each process."""
    known = [g["flops"] for g in good if g.get("flops")]
    if not known:
        return None
    each = known[0]["gflop_per_image"]
    matmul = {**known[0]["matmul"], "gflop_per_s": statistics.median(f["matmul"]["gflop_per_s"] for f in known)}
    return {
        "gflop_per_image": each, "gflop_per_s_per_device": images_per_s * each, "matmul": matmul,
        "share_of_matmul": images_per_s * each / matmul["gflop_per_s"],
    }  # fmt: skip


def _rate(good: list[dict[str, Any]], images: int) -> dict[str, Any]:
    """All images over all time; the interval is that of the processes' mean step times where there are several."""
    each = [g["raw"]["step_s"] for g in good]
    if len(each) == 1:
        alone = rate_estimate(each[0], images)
        return {
            "value": alone.value,
            "low": alone.low,
            "high": alone.high,
            "n": 1,
            "basis": f"one process: {alone.basis}",
        }
    value = images * sum(map(len, each)) / sum(map(sum, each))
    logs = mean_estimate([math.log(statistics.fmean(steps)) for steps in each])
    assert logs.high is not None
    factor = math.exp(logs.high - logs.value)
    return {
        "value": value,
        "low": value / factor,
        "high": value * factor,
        "n": len(each),
        "basis": f"{len(each)} processes",
    }


def _served(good: list[dict[str, Any]]) -> dict[str, Any]:
    first = good[0]["figures"]
    every = [s for g in good for s in g["raw"]["latency_s"]]
    return {
        "latency_s": latency_figures(every, of=first["latency_s"]["of"]),
        "offered_per_s": first["offered_per_s"],
        "served_per_s": _mean(good, "served_per_s"),
        "capacity_per_s": first["capacity_per_s"],
        "mean_batch": _mean(good, "mean_batch"),
        "kept_up": all(g["figures"]["kept_up"] for g in good),
    }


def _mean(good: list[dict[str, Any]], name: str) -> float:
    return statistics.fmean(g["figures"][name] for g in good)


def _all_or_none(values: list[bool | None]) -> bool | None:
    return None if None in values else all(values)


def _joules(good: list[dict[str, Any]]) -> float | None:
    known = [g["energy"]["joules_per_image"] for g in good if g["energy"]]
    return statistics.fmean(known) if len(known) == len(good) else None


def _compile(good: list[dict[str, Any]]) -> float | None:
    """Seconds spent compiling or tracing the network; None where it runs as it is."""
    if good[0].get("execution", "eager") == "eager":
        return None
    return statistics.fmean(g["compilation"]["seconds"] for g in good)


def add_scaling(rows: list[dict[str, Any]], rounds: Sequence[Round], *, strong: bool) -> None:
    """Efficiency against the arm with the fewest processes: rate over as many times its rate as it has more threads; and
    beside the same processes when they exchange nothing, which is all that the machine has to give."""
    known = [r for r in rows if r["status"] == "ok"]
    if not known:
        return
    base = min(known, key=lambda r: (int(r["procs"]), r.get("threads") or 0))
    for row in known:
        times = row["procs"] * (row.get("threads") or 1) / (base["procs"] * (base.get("threads") or 1))
        speedup, ends = _times_faster(row, base, rounds)
        row |= {
            "speedup": speedup, "efficiency": speedup / times, "scaling": "strong" if strong else "weak",
            "efficiency_95": ends and [end / times for end in ends], "base": row is base,
            "crowded": row.get("crowded") or _fewer_cores(row, base),
        }  # fmt: skip
        twin = next((r for r in known if "exchange" in r and _layout(r) == _layout(row)), None)
        if twin is not None and "exchange" not in row:
            value, ends = _times_faster(row, twin, rounds)
            row |= {"of_apart": value, "of_apart_95": ends}


def _layout(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(k) for k in ("batch", "precision", "mode", "procs", "threads"))


def _times_faster(
    row: Mapping[str, Any], base: Mapping[str, Any], rounds: Sequence[Round]
) -> tuple[float, list[float] | None]:
    """How many times the base's rate, with the ends of its interval; None where there is none."""
    if row is base:
        return 1.0, [1.0, 1.0]
    found = compared(rounds, row["arm"], base["arm"], DEFAULT_TOLERANCE)
    assert found is not None, "both have results"
    return found["ratio"], None if found["low"] is None else [found["low"], found["high"]]


def _fewer_cores(row: Mapping[str, Any], base: Mapping[str, Any]) -> str | None:
    """Words for processes that compute on fewer cores than those they are held against."""
    mine, theirs = row.get("compute_threads"), base.get("compute_threads")
    if "threads" in row or not mine or not theirs or mine >= theirs:
        return None
    return (
        f"{mine} core(s) a process, where procs {base['procs']} has {theirs}: as many devices would have as many each"
    )


def compared(rounds: Sequence[Round], arm: str, against: str, tolerance: float) -> dict[str, Any] | None:
    """The arm's speed over that of the one it is measured against, round by round; None where one of them has no result."""

    def side(name: str) -> list[Trace]:
        return [
            Trace(step_s=tuple(r.result["raw"]["step_s"]), samples_per_step=r.result["images_per_step"], round=r.round)
            for r in rounds
            if r.arm == name and r.result["status"] == "ok" and "step_s" in r.result["raw"]
        ]

    ours, theirs = side(arm), side(against)
    return encode(compare(theirs, ours, tolerance)) if ours and theirs else None


# ------------------------------------------------------------------------------------------------------------ for people


def same_for_all(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What need not be a column: labels in which no two rows differ."""
    shared = [name for name in ARM_COLUMNS if name != "batch" and len({str(r.get(name)) for r in rows}) == 1]
    said = ", ".join(f"{name} {rows[0][name]}" for name in shared if rows[0].get(name) is not None)
    return [f"all rows: {said}"] if said else []


def tables(rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, str]]]:
    """One table a scenario, two for scaling: rows as short texts, units in the headings; what all rows share, or none
    knows, is left out."""
    varying = [n for n in ARM_COLUMNS if n == "batch" or len({str(r.get(n)) for r in rows}) > 1]
    several = any(row.get("devices", 1) > 1 for row in rows)
    found = []
    for scenario in dict.fromkeys(row.get("scenario") for row in rows):
        shown = [_cells(row, varying) for row in rows if row.get("scenario") == scenario]
        columns = list(dict.fromkeys([*varying, *(name for row in shown for name in row)]))
        columns = [c for c in columns if any(row.get(c) for row in shown) and (several or c != "per device")]
        scaling = [c for c in columns if c in SCALING_COLUMNS] if "efficiency" in columns else []
        rest = [c for c in columns if c not in {*varying, *scaling}]
        for chosen in (scaling, rest) if scaling else (rest,):
            found.append([{c: row.get(c, "") for c in columns if c in {*varying, *chosen}} for row in shown])
    return found


def _cells(row: Mapping[str, Any], labels: Sequence[str]) -> dict[str, str]:
    out = {name: str(row[name]) for name in labels if row.get(name) is not None}
    if row["status"] != "ok":
        return {**out, "img/s total": row["status"]}
    if "latency_s" in row:
        return out | _latency_cells(row)
    return out | _rate_cells(row)


def _rate_cells(row: Mapping[str, Any]) -> dict[str, str]:
    step, flops, joules = row["step_s"], row["flops"], row["joules_per_image"]
    out = {
        "img/s total": interval(row["images_per_s_total"]),
        "per device": f"{row['images_per_s_per_device']['value']:,.1f}",
        "compute only": f"{row['compute_only_images_per_s_total']:,.1f}",
        "data wait": f"{100 * row['data_wait_share']:.1f} %",
        "bound by": row["verdict"].removesuffix("-bound"),
        "step ms p5/50/95/99": "/".join(_ms(step[k]) for k in ("p5", "median", "p95", "p99")),
        "CV": f"{100 * (step['cv'] or 0):.1f} %",
        "memory": _mib(row),
        "GFLOP/s (of matmul)": f"{flops['gflop_per_s_per_device']:.1f} ({100 * flops['share_of_matmul']:.0f} %)"
        if flops
        else "",
        "J/img": "" if joules is None else f"{joules:.3g}",
    }
    if row["compile_s"] is not None:
        out["compile s"] = f"{row['compile_s']:.1f}"
    if "efficiency" in row:
        out["times the base"] = f"{row['speedup']:.2f}"
        out["efficiency"] = _percent(row["efficiency"], row["efficiency_95"])
    if "of_apart" in row:
        out["of that without exchange"] = _percent(row["of_apart"], row["of_apart_95"])
    return out


def _percent(share: float, ends: Sequence[float] | None) -> str:
    return f"{100 * share:.1f} % [{', '.join(f'{100 * end:.0f}' for end in ends or ()) or 'no interval'}]"


def _ms(seconds: float) -> str:
    """Milliseconds in three digits."""
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 99.95 else f"{ms:.1f}" if ms >= 9.995 else f"{ms:.2f}"


def _latency_cells(row: Mapping[str, Any]) -> dict[str, str]:
    latency = row["latency_s"]
    shown = {f"{name} ms": f"{1000 * e['value']:.2f}" for name, e in latency["percentiles"].items()}
    out = {"latency ms mean": f"{1000 * latency['mean']:.2f}", **shown, "n": str(latency["n"])}
    if "images_per_s_total" in row:
        out |= {"img/s total": interval(row["images_per_s_total"]), "memory": _mib(row)}
    if "served_per_s" in row:
        asked = f"{row['served_per_s']:.1f} of {row['offered_per_s']:.1f}"
        out |= {
            "served/s": asked,
            "kept up": "yes" if row["kept_up"] else "NO",
            "mean batch": f"{row['mean_batch']:.2f}",
        }
    return out


def _mib(row: Mapping[str, Any]) -> str:
    peak = row["peak_memory_bytes"]
    return "unknown" if peak is None else f"{peak / 2**20:,.0f} MiB"


def interval(found: Mapping[str, Any]) -> str:
    """123.4 [120.1, 126.9]; an interval that says nothing is said to be one."""
    if found["low"] is None or found["high"] is None:
        return f"{found['value']:,.1f} [no interval: {found['basis']}]"
    if found["high"] > TELLS_NOTHING * found["value"]:
        return f"{found['value']:,.1f} [could be {TELLS_NOTHING} times that]"
    return f"{found['value']:,.1f} [{found['low']:,.1f}, {found['high']:,.1f}]"


def notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must stand beside the figures: noise, what was not steady or not precise enough, on what intervals rest."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for words in _said_of(row):
            said.setdefault(words, []).append(str(row["arm"]))
    found = [f"{'all rows' if len(rows) > 1 and len(arms) == len(rows) else ', '.join(arms)}: {w}" for w, arms in said.items()]  # fmt: skip
    rates = [row["images_per_s_total"] for row in rows if "images_per_s_total" in row]
    found += [f"95 % intervals: {basis}" for basis in sorted({rate["basis"] for rate in rates})]
    if any((rate["high"] or 0) > TELLS_NOTHING * rate["value"] for rate in rates):
        found.append(
            "processes of one row differ so much that its rate is not known: give more --repeats, or a quieter machine"
        )
    found += [_base_case(row) for row in rows if row.get("base")]
    if rates and all(row.get("joules_per_image") is None for row in rows):
        found.append("energy: unknown, no counter here tells it")
    return found


def _base_case(row: Mapping[str, Any]) -> str:
    kept = "a process" if row["scaling"] == "weak" else "in all"
    return f"base case: {row['arm']}, {row['images_per_s_total']['value']:,.1f} img/s; {row['scaling']} scaling: the same batch {kept}"


def _said_of(row: Mapping[str, Any]) -> list[str]:
    if row["status"] != "ok":
        return [f"{row['status']}: {row.get('why')}"]
    found = [f"NOISY: {'; '.join(row['noise'])}"] if row["noise"] else []
    if row.get("steady") is False:
        found.append("not steady when measuring began")
    if row.get("reached_precision") is False:
        found.append("the asked precision was not reached in the time given")
    if row.get("crowded"):
        found.append(row["crowded"])
    if row.get("phases"):
        split = ", ".join(f"{name} {100 * share:.0f} %" for name, share in row["phases"]["share"].items())
        found.append(f"of a step: {split} ({row['phases']['steps']} steps, synchronised at every phase)")
    return found


def markdown(title: str, rows: Sequence[Mapping[str, Any]], facts: Sequence[str]) -> str:
    """The table as Markdown, with its notes below."""
    lines = [f"# {title}", ""]
    for shown in tables(rows):
        columns = list(shown[0])
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [*(f"| {' | '.join(row.values())} |" for row in shown), ""]
    return "\n".join([*lines, *(f"- {line}" for line in [*notes(rows), *facts]), ""])
