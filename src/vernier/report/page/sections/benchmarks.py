"""Benchmarks: throughput by batch and precision, latency, scaling against ideal, phases of a step, and the whole table."""

from typing import Any

from markupsafe import Markup

from vernier.measure.bench.table import ARM_COLUMNS
from vernier.records.codec import encode
from vernier.report.page.collect import Subject
from vernier.report.page.figures import PHASE_COLOURS, Bars, Figure, Lines, Section, Stack, grid
from vernier.report.page.html import Cell, Column, joined, section, table, tag

CURVE_POINTS = 200


def benchmarks(subjects: list[Subject]) -> Section | None:
    runs = [s for s in subjects if s.bench]
    if not runs:
        return None
    figures: list[Figure] = []
    parts: list[Markup] = []
    for number, s in enumerate(runs):
        rows = _rows(s)
        made = [
            f
            for f in (
                _throughput(rows, number),
                _scaling(rows, number),
                _efficiency(rows, number),
                _latency(s, number),
                _phases(rows, number),
            )
            if f
        ]
        figures += made
        head = tag("h3", s.name, style="margin-bottom:10px") if len(runs) > 1 else None
        parts.append(
            tag("div", head, grid(made), _table(s, number), _compared(s), cls="stack", style="margin-bottom:26px")
        )
    lead = "Throughput is images over wall time, data loading included; whiskers are 95 % intervals."
    return Section(
        name="benchmarks",
        title="Benchmarks",
        html=section("benchmarks", "Benchmarks", lead, joined(parts)),
        figures=figures,
    )


def _rows(s: Subject) -> list[dict[str, Any]]:
    return [r for r in encode(s.bench).get("rows", []) if r.get("status") == "ok"]


def _told(row: dict[str, Any], rows: list[dict[str, Any]], apart_from: tuple[str, ...]) -> str:
    """The labels of an arm in which the arms differ."""
    differing = [k for k in ARM_COLUMNS if k not in apart_from and len({str(r.get(k)) for r in rows}) > 1]
    return ", ".join(
        f"{row[k]}" if k in ("precision", "mode", "scenario", "side") else f"{k} {row[k]}"
        for k in differing
        if row.get(k) is not None
    )


def _throughput(every: list[dict[str, Any]], number: int) -> Figure | None:
    rows = [r for r in every if r.get("images_per_s_total") and "efficiency" not in r]
    if not rows:
        return None
    batches = sorted({r["batch"] for r in rows if isinstance(r.get("batch"), int)})
    data = [
        [
            r.get("batch"),
            _told(r, rows, ("batch",)) or str(r.get("precision") or ""),
            r["images_per_s_total"]["value"],
            r["images_per_s_total"].get("low"),
            r["images_per_s_total"].get("high"),
            r["rounds"],
        ]
        for r in sorted(rows, key=lambda r: (str(r.get("precision")), r.get("batch") or 0))
    ]
    columns = ["batch", "arm", "img/s", "low", "high", "processes"]
    if len(batches) > 2:
        chart: Lines | Bars = Lines(
            x="batch", y="img/s", by="arm", low="low", high="high", marks=True, zero=True, log_x=batches[0] > 0
        )
    else:
        data = [[f"batch {r[0]}" if r[0] is not None else str(r[1]), *r[1:]] for r in data]
        chart = Bars(
            category="batch", value="img/s", by="arm", low="low", high="high", x_title="images a second, all devices"
        )
    return Figure(
        name=f"bench-throughput-{number}", title="Throughput by batch", chart=chart, columns=columns, rows=data
    )


def _scaling(every: list[dict[str, Any]], number: int) -> Figure | None:
    sized = _by_size(every)
    rows = [r for r in sized if r.get("threads") == sized[0].get("threads")]
    if len({r["procs"] for r in rows}) < 2:
        return None
    base = rows[0]
    rate = base["images_per_s_total"]["value"] / base["procs"]
    data: list[list[Any]] = [
        [
            r["procs"], "without exchange" if "exchange" in r else "measured",
            *(r["images_per_s_total"].get(k) for k in ("value", "low", "high")),
        ]
        for r in sorted(rows, key=lambda r: "exchange" in r)
    ]  # fmt: skip
    data += [[r["procs"], "ideal", rate * r["procs"], None, None] for r in rows if "exchange" not in r]
    chart = Lines(x="processes", y="img/s", by="which", dash="which", low="low", high="high", marks=True, zero=True)
    return Figure(
        name=f"scaling-{number}",
        title=f"{str(base['scaling']).capitalize()} scaling",
        chart=chart,
        columns=["processes", "which", "img/s", "low", "high"],
        rows=data,
    )


def _by_size(every: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The arms of a scaling benchmark; the one with the fewest processes is first."""
    return sorted(
        (r for r in every if "efficiency" in r), key=lambda r: (int(r["procs"]), r.get("threads") or 0, "exchange" in r)
    )


def _size(row: dict[str, Any]) -> str:
    processes = "1 process" if row["procs"] == 1 else f"{row['procs']} processes"
    threads = f" x {row['threads']} thread{'s' if row['threads'] != 1 else ''}" if row.get("threads") else ""
    return processes + threads + (", no exchange" if "exchange" in row else "")


def _efficiency(every: list[dict[str, Any]], number: int) -> Figure | None:
    rows = _by_size(every)
    if len(rows) < 2:
        return None
    data = [[_size(r), 100 * r["efficiency"], r["speedup"]] for r in rows]
    chart = Bars(
        category="size", value="efficiency %", max=max(100.0, *(d[1] for d in data)), unit=" %", x_title="% of ideal"
    )
    return Figure(
        name=f"efficiency-{number}",
        title="Efficiency against ideal",
        chart=chart,
        columns=["size", "efficiency %", "speed-up"],
        rows=data,
    )


def _latency(s: Subject, number: int) -> Figure | None:
    """How large a share of the queries was answered within a time: every query counts, no bins."""
    rows = _rows(s)
    arms = {r["arm"]: _told(r, rows, ()) or r["arm"] for r in rows if r.get("latency_s")}
    samples: dict[str, list[float]] = {}
    for one in encode(s.bench).get("rounds", []):
        raw = (one.get("result") or {}).get("raw") or {}
        if one.get("arm") in arms:
            samples.setdefault(one["arm"], []).extend(raw.get("latency_s") or raw.get("step_s") or [])
    data: list[list[Any]] = []
    for arm, values in samples.items():
        ordered = sorted(values)
        step = max(1, len(ordered) // CURVE_POINTS)
        places = sorted({*range(0, len(ordered), step), len(ordered) - 1}) if ordered else []
        data += [[arms[arm], 1000 * ordered[i], 100 * (i + 1) / len(ordered)] for i in places]
    if not data:
        return None
    chart = Lines(x="ms", y="% answered", by="arm", zero=True, unit=" %", x_title="within ms")
    return Figure(
        name=f"latency-{number}",
        title="Latency",
        chart=chart,
        columns=["arm", "ms", "% answered"],
        rows=data,
        caption="share of all queries that were answered within a time",
    )


def _phases(rows: list[dict[str, Any]], number: int) -> Figure | None:
    known = [r for r in rows if r.get("phases")]
    data = [
        [_told(r, known, ()) or r["arm"], phase, 1000 * s] for r in known for phase, s in r["phases"]["seconds"].items()
    ]
    if not data:
        return None
    chart = Stack(category="arm", part="phase", value="ms a step", unit="ms", part_colours=PHASE_COLOURS)
    return Figure(
        name=f"phases-{number}",
        title="What a step consists of",
        chart=chart,
        columns=["arm", "phase", "ms a step"],
        rows=data,
        caption="measured apart, synchronised at every phase",
    )


def _table(s: Subject, number: int) -> Markup:
    every = encode(s.bench).get("rows", [])
    shared = [
        k
        for k in ARM_COLUMNS
        if k != "batch" and len(every) > 1 and len({str(r.get(k)) for r in every}) == 1 and every[0].get(k) is not None
    ]
    labels = [k for k in ARM_COLUMNS if k not in shared and any(r.get(k) is not None for r in every)]
    columns: list[tuple[Column, Any]] = [(Column(k), lambda r, k=k: r.get(k)) for k in labels]
    columns += [
        (Column("status"), lambda r: r["status"]),
        (Column("img/s", 1), lambda r: (r.get("images_per_s_total") or {}).get("value")),
        (Column("low", 1), lambda r: (r.get("images_per_s_total") or {}).get("low")),
        (Column("high", 1), lambda r: (r.get("images_per_s_total") or {}).get("high")),
        (Column("per device", 1), lambda r: (r.get("images_per_s_per_device") or {}).get("value")),
        (Column("data wait", meter=True), lambda r: r.get("data_wait_share")),
        (Column("verdict"), lambda r: r.get("verdict")),
        (Column("step ms p50", 2), lambda r: _ms(r, "median")),
        (Column("p95", 2), lambda r: _ms(r, "p95")),
        (Column("p99", 2), lambda r: _ms(r, "p99")),
        (Column("latency ms p50", 2), lambda r: _wait(r, "p50")),
        (Column("latency ms p99", 2), lambda r: _wait(r, "p99")),
        (Column("memory MiB", 0), lambda r: r["peak_memory_bytes"] / 2**20 if r.get("peak_memory_bytes") else None),
        (Column("GFLOP/s", 1), lambda r: (r.get("flops") or {}).get("gflop_per_s_per_device")),
        (Column("J/img", 3), lambda r: r.get("joules_per_image")),
        (Column("efficiency", meter=True), lambda r: r.get("efficiency")),
        (Column("speed-up", 2), lambda r: r.get("speedup")),
        (Column("of that without exchange", meter=True), lambda r: r.get("of_apart")),
    ]
    cells: list[list[Cell]] = [[read(r) for _, read in columns] for r in every]
    idle = {"status"} if all(r["status"] == "ok" for r in every) else set()
    idle |= {"per device"} if all(r.get("devices", 1) == 1 for r in every) else set()
    used = [i for i in range(len(columns)) if any(c[i] is not None for c in cells) and columns[i][0].name not in idle]
    notes = [f"All arms: {', '.join(f'{k} {every[0][k]}' for k in shared)}."] if shared else []
    notes += [f"{r['arm']}: {r.get('why')}" for r in every if r["status"] != "ok"]
    notes += [f"{r['arm']}: noisy, {'; '.join(r['noise'])}" for r in every if r.get("noise")]
    notes += [
        f"95 % intervals: {b}."
        for b in dict.fromkeys(str(r["images_per_s_total"]["basis"]) for r in every if r.get("images_per_s_total"))
    ]
    shown = table(f"bench-{number}", [columns[i][0] for i in used], [[c[i] for i in used] for c in cells], "All arms")
    return tag("div", shown, tag("ul", *(tag("li", n) for n in notes), cls="notes") if notes else None, cls="card")


def _ms(row: dict[str, Any], which: str) -> float | None:
    value = (row.get("step_s") or {}).get(which)
    return None if value is None else 1000 * value


def _wait(row: dict[str, Any], which: str) -> float | None:
    found = ((row.get("latency_s") or {}).get("percentiles") or {}).get(which)
    return None if not found else 1000 * found["value"]


def _compared(s: Subject) -> Markup | None:
    found = encode(s.bench).get("compared") or []
    rows: list[list[Cell]] = [
        [c["arm"], c["against"], c["ratio"], c["low"], c["high"], c["verdict"], c["basis"]] for c in found
    ]
    columns = [
        Column("arm", wrap=True),
        Column("against", wrap=True),
        Column("times as fast", 4),
        Column("low", 4),
        Column("high", 4),
        Column("verdict"),
        Column("from", wrap=True),
    ]
    return tag("div", table("bench-compared", columns, rows, "Compared"), cls="card") if rows else None
