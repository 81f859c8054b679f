"""Devices: are they equal? Normalised performance by cabinet, node and device, what it goes with, and telemetry over time."""

from typing import Any

from markupsafe import Markup

from vernier.measure.study.analysis import SENSORS
from vernier.records.telemetry import Sample, TelemetryHeader
from vernier.report.page.collect import MOST_POINTS, Subject
from vernier.report.page.figures import Figure, Section, grid
from vernier.report.page.html import Cell, Column, chip, joined, section, table, tag

MOST_GROUPS = 72
UNITS = {"freq": "clock, MHz", "power": "power, W", "temp": "temperature, °C", "perf": "performance"}
TELEMETRY = {
    "clock_mhz": "Clock, MHz",
    "power_w": "Power, W",
    "temperature_c": "Temperature, °C",
    "util_pct": "Busy, %",
    "others_pct": "Busy with other programs, %",
    "steal_pct": "Taken by the hypervisor, %",
}


def devices(subjects: list[Subject]) -> Section | None:
    figures: list[Figure] = []
    parts: list[Markup] = []
    for number, s in enumerate(s for s in subjects if s.study):
        made = _study_figures(s, number)
        figures += made
        head = tag("h3", s.name, style="margin-bottom:10px")
        parts.append(
            tag("div", head, _verdict(s), grid(made), _table(s, number), cls="stack", style="margin-bottom:26px")
        )
    watched = _telemetry([s for s in subjects if s.telemetry])
    if watched:
        figures += watched
        missing = _missing(subjects)
        parts.append(
            tag(
                "div",
                tag("h3", "Telemetry"),
                tag("p", missing, cls="note") if missing else None,
                grid(watched),
                cls="stack",
            )
        )
    if not parts:
        return None
    return Section(
        name="devices", title="Devices", html=section("devices", "Devices", "", joined(parts)), figures=figures
    )


# --------------------------------------------------------------------------------------------------------------- studies


def _flags(s: Subject) -> dict[str, str]:
    assert s.study is not None
    found = {}
    for d in s.study.found["devices"]:
        sure = "surely slow" if d["sure_slow"] else "surely fast" if d["sure_fast"] else ""
        beyond = f"{d['beyond_fence']}, beyond the fence" if d["beyond_fence"] else ""
        if sure or beyond:
            found[str(d["device"])] = sure or beyond
    return found


def _verdict(s: Subject) -> Markup:
    assert s.study is not None
    found = s.study.found
    pull, cost = found["pull"], found["straggler"]
    named = [chip(f"pull {d}", "slow") for d in pull[:12]] or [chip("no device to pull", "accepted")]
    more = f" and {len(pull) - 12} more" if len(pull) > 12 else ""
    after = f" With them pulled: {cost['after_pulling']['cost']:.3f} times." if pull else ""
    text = (
        f" Synchronous training over all devices takes {cost['cost']:.3f} times the median device's time; "
        f"the slowest single run took {cost['slowest_run_over_median']:.2f} times the median.{after}"
    )
    split = found["variance"].get("undisturbed_runs")
    spread = (
        f" Between devices {split['between_devices']['value']:.2f} % (sd), "
        f"between repeats of one device {split['between_repeats']['value']:.2f} %."
        if split
        else ""
    )
    return tag("div", tag("div", *named, more, cls="chips"), tag("p", text.strip(), spread), cls="agree")


def _study_figures(s: Subject, number: int) -> list[Figure]:
    assert s.study is not None
    flags, found = _flags(s), s.study.found
    boxes = [_boxes(s, level, flags, number) for level in ("cabinet", "node", "device")]
    scatters = [_scatter(s, sensor, flags, number) for sensor in SENSORS]
    curves = _study_telemetry(s, number)
    return [f for f in (*boxes, _ranked(s, flags, number), _correlation(found, number), *scatters, *curves) if f]


def _boxes(s: Subject, level: str, flags: dict[str, str], number: int) -> Figure | None:
    """Every run of a device; of a node or cabinet, the medians of its devices."""
    assert s.study is not None
    if level == "device":
        rows = [[r["device"], r["device"], r["normalised"], flags.get(r["device"], "")] for r in s.study.runs]
    else:
        where = {r["device"]: r[level] for r in s.study.runs if r[level]}
        rows = [
            [where[d["device"]], d["device"], d["normalised"], flags.get(d["device"], "")]
            for d in s.study.found["devices"]
            if d["device"] in where
        ]
    groups = {r[0] for r in rows}
    if not 2 <= len(groups) <= MOST_GROUPS:
        return None
    middle = {g: sorted(r[2] for r in rows if r[0] == g) for g in groups}
    rows.sort(key=lambda r: (-middle[r[0]][len(middle[r[0]]) // 2], str(r[0])) if level == "device" else (0, str(r[0])))
    chart = {
        "type": "boxes",
        "category": level,
        "value": "normalised",
        "name": "which",
        "flag": "remark",
        "line": 1.0,
        "xTitle": "over the median device",
    }
    what = "each dot is a run" if level == "device" else "each dot is a device's median"
    return Figure(
        name=f"{level}-{number}",
        title=f"By {level}",
        chart=chart,
        columns=[level, "which", "normalised", "remark"],
        rows=rows,
        wide=True,
        caption=f"{s.study.found['what']}, divided by the median over devices; {what}; box: quartiles; whiskers: within 1.5 times the box; "
        "coloured: outliers",
    )


def _ranked(s: Subject, flags: dict[str, str], number: int) -> Figure | None:
    assert s.study is not None
    found = s.study.found["devices"]
    if len(found) < 5:
        return None
    rows = [
        [i + 1, d["device"], d["normalised"], d["low"], d["high"], flags.get(str(d["device"]), "")]
        for i, d in enumerate(found)
    ]
    chart = {
        "type": "scatter",
        "x": "rank",
        "y": "normalised",
        "low": "low",
        "high": "high",
        "name": "device",
        "flag": "remark",
        "line": 1.0,
        "xTitle": "rank, slowest first",
        "yTitle": "over the median device",
    }
    return Figure(
        name=f"ranked-{number}",
        title="Devices, slowest first",
        chart=chart,
        columns=["rank", "device", "normalised", "low", "high", "remark"],
        rows=rows,
        caption="median of its repeats with 95 % interval",
    )


def _scatter(s: Subject, sensor: str, flags: dict[str, str], number: int) -> Figure | None:
    assert s.study is not None
    rows = [
        [r[sensor], r["value"], r["device"], flags.get(r["device"], "")]
        for r in s.study.runs
        if r.get(sensor) is not None
    ]
    if not rows:
        return None
    found = s.study.found
    value = found["correlation"]["pearson"]["perf"].get(sensor)
    said = f"correlation {value:+.2f} over {len(rows):,} runs" if value is not None else "constant: no correlation"
    chart = {"type": "scatter", "x": UNITS[sensor], "y": found["unit"], "flag": "remark", "name": ""}
    return Figure(
        name=f"against-{sensor}-{number}",
        title=f"Performance against {UNITS[sensor].split(',')[0]}",
        chart=chart,
        columns=[UNITS[sensor], found["unit"], "device", "remark"],
        rows=rows,
        caption=f"{found['what']}; {said}",
    )


def _correlation(found: dict[str, Any], number: int) -> Figure | None:
    table_, missing = found["correlation"]["pearson"], found["correlation"]["not_measured"]
    names = [n for n in table_ if n not in missing]
    if len(names) < 2:
        return None
    ranks = found["correlation"]["spearman"]
    short = {n: UNITS[n].split(",")[0] for n in names}
    rows = [[short[a], short[b], table_[a][b], ranks[a][b]] for a in names for b in names]
    chart = {
        "type": "heat",
        "row": "this",
        "column": "with",
        "value": "Pearson",
        "diverging": True,
        "most": 1,
        "cell": 96,
    }
    return Figure(
        name=f"correlation-{number}",
        title="What goes with what",
        chart=chart,
        columns=["this", "with", "Pearson", "Spearman"],
        rows=rows,
        caption="Pearson's correlation over runs; orange together, blue opposite",
    )


def _study_telemetry(s: Subject, number: int) -> list[Figure]:
    assert s.study is not None
    found = []
    for key, title in TELEMETRY.items():
        clock = next((k for k in ("seconds", "t_s") if any(k in r for r in s.study.telemetry)), "seconds")
        rows = [[r.get(clock), r["device"], r[key]] for r in s.study.telemetry if isinstance(r.get(key), int | float)]
        if rows:
            chart = {
                "type": "lines",
                "x": "s",
                "y": key,
                "by": "device",
                "xTitle": "s since the repeat began",
                "yTitle": "",
            }
            found.append(
                Figure(
                    name=f"study-{key}-{number}",
                    title=title,
                    chart=chart,
                    columns=["s", "device", key],
                    rows=rows,
                    caption="first repeat of each device",
                )
            )
    return found


def _table(s: Subject, number: int) -> Markup:
    assert s.study is not None
    found = s.study.found
    rows: list[list[Cell]] = [
        [
            str(d["device"]),
            d["repeats"],
            d["median"],
            d["normalised"],
            d["low"],
            d["high"],
            d["slower_percent"],
            d["beyond_fence"],
            "slow" if d["sure_slow"] else "fast" if d["sure_fast"] else None,
        ]
        for d in found["devices"]
    ]
    columns = [
        Column("device", wrap=True),
        Column("repeats"),
        Column(f"median, {found['unit']}"),
        Column("normalised", 4),
        Column("low", 4),
        Column("high", 4),
        Column("slower %", 2),
        Column("beyond fence"),
        Column("surely"),
    ]
    return tag(
        "div",
        table(f"study-{number}", columns, rows, "Devices"),
        tag("p", found["outliers"]["rule"], cls="note"),
        cls="card",
    )


# ------------------------------------------------------------------------------------------------------------- telemetry


def _telemetry(runs: list[Subject]) -> list[Figure]:
    found = []
    for key, title in TELEMETRY.items():
        rows: list[list[Any]] = []
        for s in runs:
            rows += _curves(s, key, several=len(runs) > 1)
        if rows:
            chart = {
                "type": "lines",
                "x": "s",
                "y": key,
                "by": "device",
                "yTitle": "",
                "xTitle": "s since the session began",
                "zero": key.endswith("pct"),
            }
            found.append(
                Figure(name=f"telemetry-{key}", title=title, chart=chart, columns=["s", "device", key], rows=rows)
            )
    return found


def _curves(s: Subject, key: str, *, several: bool) -> list[list[Any]]:
    """One curve a device and session, thinned by averaging."""
    groups: dict[str, list[tuple[float, float]]] = {}
    begun: dict[int, float] = {}
    for r in s.telemetry:
        value = getattr(r, key) if isinstance(r, Sample) else None
        if not isinstance(r, Sample) or value is None:
            continue
        begun.setdefault(r.session, r.t_s)
        name = " ".join(
            filter(
                None,
                [
                    s.name if several else "",
                    f"{r.device_kind} {r.device}",
                    f"session {r.session + 1}" if r.session else "",
                ],
            )
        )
        groups.setdefault(name, []).append((r.t_s - begun[r.session], value))
    out: list[list[Any]] = []
    most = max(50, MOST_POINTS // max(1, len(groups)))
    for name, points in groups.items():
        size = -(-len(points) // most)
        for at in range(0, len(points), size):
            part = points[at : at + size]
            out.append([sum(t for t, _ in part) / len(part), name, sum(v for _, v in part) / len(part)])
    return out


def _missing(subjects: list[Subject]) -> str:
    headers = [r for s in subjects for r in s.telemetry if isinstance(r, TelemetryHeader)]
    names = dict.fromkeys(f"{m.sensor} ({m.why})" for h in headers for m in h.missing)
    return f"Not measured here: {', '.join(names)}." if names else ""
