"""At a glance: what was run, on what, the result with its interval, agreement with the published one, warnings."""

from typing import Any

from markupsafe import Markup

from vernier.measure.bench.measuring import LOADER_BOUND_SHARE
from vernier.measure.statistics.agreement import agreement_lines
from vernier.measure.statistics.estimates import share_interval
from vernier.records.codec import decode
from vernier.records.environment import Environment
from vernier.records.run import Agreement
from vernier.report.live.console import plural
from vernier.report.page.collect import FOREIGN, Subject
from vernier.report.page.figures import Section
from vernier.report.page.html import Column, chip, facts, joined, number, seconds, section, table, tag, tile

SHOWN_WARNINGS, SHOWN_NOTES = 8, 3
WHAT = {"training": "training", "bench": "benchmark", "profile": "profile", "study": "device study"}


def glance(subjects: list[Subject]) -> Section | None:
    cards = [_card(s, i, len(subjects) > 1) for i, s in enumerate(subjects)]
    trainings = [s for s in subjects if s.kind == "training"]
    side_by_side = _side_by_side(trainings) if len(trainings) > 1 else None
    body = joined([tag("div", *cards, cls="runs"), side_by_side])
    return Section(name="glance", title="At a glance", html=section("glance", "At a glance", "", body))


def _card(subject: Subject, index: int, several: bool) -> Markup:
    mark = tag("span", cls=f"mark c{index % 8}", aria_hidden="true") if several else None
    chips = [chip(WHAT[subject.kind])]
    if subject.foreign:
        chips.append(chip(f"foreign: {FOREIGN[subject.format]}", "foreign"))
    else:
        chips.append(chip(subject.status, subject.status))
    if subject.simulated:
        chips.append(chip("simulated devices", "simulated"))
    return tag(
        "article",
        tag("div", mark, tag("h3", subject.name), cls="run-head"),
        tag("div", *chips, cls="chips"),
        facts(_facts(subject)),
        tag("dl", *_tiles(subject), cls="tiles"),
        _agreement(subject),
        _warnings(subject),
        _notes(subject),
        cls="card",
    )


# --------------------------------------------------------------------------------------------------------- what, where


def _facts(s: Subject) -> list[tuple[str, Any]]:
    if s.kind == "study" and s.study:
        return _study_facts(s)
    e, recipe = s.start, s.settings.get("recipe") or {}
    if s.foreign:
        known = {
            k: s.settings.get(k) for k in ("arch", "model", "submission_benchmark", "submission_platform", "batch_size")
        }
        return [*((k, v) for k, v in known.items() if v), ("devices", e.get("world")), ("log", tag("code", s.path))]
    model, data = recipe.get("model") or {}, recipe.get("data") or {}
    sizes = f", {e['parameters']:,} parameters, {plural(e['classes'], 'class')}" if e.get("parameters") else ""
    validation = f" and {e['val_samples']:,} validation" if e.get("val_samples") else ""
    images = f": {e['train_samples']:,} training{validation} images" if e.get("train_samples") else ""
    return [
        ("model", f"{model.get('name', '')}{sizes}"),
        ("data", f"{data.get('source', '')}{images}"),
        ("schedule", _schedule(s)),
        ("machine", _machine(s)),
        ("run", tag("code", s.path)),
        ("started", str(e.get("time") or "")[:16].replace("T", " ")),
    ]


def _schedule(s: Subject) -> str:
    e = s.start
    if not e.get("total_steps"):
        return ""
    done = max((p["step"] for p in s.points), default=0)
    cut = f", to stop at {e['stop_step']:,}" if e["stop_step"] < e["total_steps"] else ""
    size = f"{e['epochs']:g} epochs of {plural(e['steps_per_epoch'], 'step')}, batch {e['global_batch']:,}"
    return f"{size}; {done:,} of {e['total_steps']:,} steps{cut}"


def _machine(s: Subject) -> str:
    e, environment = s.start, s.environment or Environment()
    names = dict.fromkeys(d.name for d in environment.devices if d.name)
    shape = (
        f"{plural(e['world'], 'process')} x {plural(e['threads'], 'thread')}, {e['precision']}, {e['mode']}"
        if e.get("world") and e.get("threads")
        else ""
    )
    return "; ".join(
        filter(
            None, [", ".join(names) or environment.device_kind, shape, environment.host and f"host {environment.host}"]
        )
    )


def _study_facts(s: Subject) -> list[tuple[str, Any]]:
    assert s.study is not None
    result = s.study.result
    least, most = result.repeats_per_device.least, result.repeats_per_device.most
    repeats = plural(least, "repeat") if least == most else f"{least} to {most} repeats"
    return [
        ("workload", result.workload),
        ("measured", f"{result.what}, in {result.unit}"),
        ("runs", f"{result.runs:,} on {plural(result.devices_measured, 'device')}, {repeats} each"),
        ("study", tag("code", s.path)),
    ]


# --------------------------------------------------------------------------------------------------------------- tiles


def _tiles(s: Subject) -> list[Markup]:
    if s.kind == "study":
        return _study_tiles(s)
    if s.kind == "bench":
        return _bench_tiles(s)
    return [*_result_tiles(s), *_speed_tiles(s), *_time_tiles(s), *_profile_tiles(s)]


def _result_tiles(s: Subject) -> list[Markup]:
    result = s.result
    if not result:
        return []
    part = "" if result.get("exact", True) else ", part of the set"
    if result.get("top1") is not None:
        return [
            _share_tile("top-1", result, "top1", part),
            *([_share_tile("top-5", result, "top5", "")] if result.get("top5") else []),
        ]
    if result.get("AP") is not None:
        images = f"{result['samples']:,} images{part}" if result.get("samples") else ""
        return [
            tile("AP (IoU 0.50 to 0.95)", f"{result['AP']:.3f}", "", images),
            tile("AP50", number(result.get("AP50"), 3)),
        ]
    return [tile(k, number(v)) for k, v in result.items() if k == "eval_accuracy"]


def _share_tile(name: str, result: dict[str, Any], key: str, part: str) -> Markup:
    """What another draw of as many images would give is in the interval; what another training would give is not."""
    value, n = result[key], result.get("samples")
    if not n or not 0 <= value <= 100:
        return tile(name, f"{value:.2f}", "%")
    low, high = share_interval(round(value * n / 100), n)
    return tile(name, f"{value:.2f}", "%", f"95 %: {100 * low:.1f} to {100 * high:.1f}, {n:,} images{part}")


def _speed_tiles(s: Subject) -> list[Markup]:
    training = s.summary.get("training")
    if training:
        low, high = training.get("images_per_s_total_95") or (None, None)
        between = _between(low, high) or "no interval: too few steps"
        tiles = [tile("throughput", number(training["images_per_s_total"]), "img/s", f"{between}; data included")]
        energy = training.get("energy")
        if energy:
            tiles.append(tile("energy", number(energy["joules_per_image"]), "J/img", energy["method"]))
        return [*tiles, tile("data wait", f"{100 * training['data_wait_share']:.1f}", "%", "of the steps' time")]
    took, samples = sum(p["seconds"] for p in s.points), sum(p["samples"] for p in s.points)
    if not took or not samples:
        return []
    return [
        tile(
            "throughput so far" if s.status == "running" else "throughput",
            number(samples / took),
            "img/s",
            "all recorded steps, warm-up included",
        )
    ]


def _between(low: float | None, high: float | None) -> str:
    """An interval, as far as it is known: few measurements may leave it open above."""
    if low is None:
        return ""
    return f"95 %: above {number(low)}" if high is None else f"95 %: {number(low)} to {number(high)}"


def _profile_tiles(s: Subject) -> list[Markup]:
    shares = s.profiles[0].summary.where_the_time_goes.share if s.profiles else {}
    if not shares:
        return []
    first, last = s.profiles[0].summary.steps
    longest = max(shares, key=lambda name: shares[name])
    return [
        tile("steps profiled", str(last - first + 1), "", f"{first} to {last}"),
        tile("most time in", longest, "", f"{100 * shares[longest]:.0f} % of a step"),
    ]


def _time_tiles(s: Subject) -> list[Markup]:
    total = s.spent_s.get("total")
    return [tile("time", seconds(total), "", "so far" if s.status == "running" else "")] if total else []


def _bench_tiles(s: Subject) -> list[Markup]:
    rows = [r for r in (s.bench or {}).get("rows", []) if r.get("status") == "ok"]
    rates = [r for r in rows if r.get("images_per_s_total") and "exchange" not in r]
    tiles = []
    if rates:
        best = max(rates, key=lambda r: float(r["images_per_s_total"]["value"]))
        rate = best["images_per_s_total"]
        between = _between(rate.get("low"), rate.get("high")) or f"no interval: {rate.get('basis', 'too few')}"
        tiles.append(tile("fastest", number(rate["value"]), "img/s", f"{between}; {best['arm']}"))
    waits = [r for r in rows if r.get("latency_s")]
    if waits:
        quick = min(waits, key=lambda r: float(r["latency_s"]["percentiles"]["p50"]["value"]))
        tiles.append(
            tile(
                "lowest median latency",
                number(1000 * quick["latency_s"]["percentiles"]["p50"]["value"]),
                "ms",
                quick["arm"],
            )
        )
    return [*tiles, tile("arms", str(len((s.bench or {}).get("rows", []))), "", f"{len(rows)} measured")]


def _study_tiles(s: Subject) -> list[Markup]:
    assert s.study is not None
    result = s.study.result
    sure, cost = result.outliers.sure, result.straggler
    variation = result.variation_percent.over_device_medians["fence"]
    return [
        tile("devices", number(result.devices_measured), "", f"{result.runs:,} runs"),
        tile("surely slow", str(sure.slow), "", f"surely fast: {sure.fast}"),
        tile("variation", number(variation), "%", "fence to fence, over device medians"),
        tile("straggler's cost", f"{cost.cost:.3f}", "times", f"synchronous training waits for {cost.slowest}"),
    ]


# ------------------------------------------------------------------------------------------------- agreement, warnings


VERDICTS = {
    "inside": "agrees with the published result",
    "below": "below the published result",
    "above": "above the published result",
    "no-spread": "no spread was published",
    "not-comparable": "not comparable with the published result",
}


def _agreement(s: Subject) -> Markup | None:
    if not s.summary.get("agreement"):
        return None
    agreement = decode(Agreement, s.summary["agreement"])
    said, differs = agreement_lines(agreement)
    more = tag(
        "details",
        tag("summary", "what was done differently"),
        tag("p", differs.removeprefix("differs").strip(), cls="note"),
    )
    return tag(
        "div",
        chip(VERDICTS[agreement.verdict], agreement.verdict),
        said.removeprefix("published").strip(),
        more,
        cls="agree",
    )


def messages(s: Subject) -> list[str]:
    """What a reader must know, most important first."""
    training, found = s.summary.get("training") or {}, []
    if s.status == "crashed":
        found.append("this run ended without saying so: what it had recorded until then is shown")
    if s.reason:
        found.append(s.reason)
    share = training.get("data_wait_share", 0.0)
    if share > LOADER_BOUND_SHARE:
        found.append(f"loader-bound: {100 * share:.0f} % of the steps' time was spent waiting for data")
    if s.disturbed:
        found.append(f"noisy: {'; '.join(s.disturbed)}")
    if s.simulated:
        found.append(
            "the devices of this study are simulated: they were slowed on purpose, and say nothing about hardware"
        )
    if bad := s.summary.get("bad_images"):
        found.append(f"{plural(len(bad), 'bad image')}, the first is {bad[0]['path']}: {bad[0]['reason']}")
    return list(dict.fromkeys([*found, *s.warnings, *_noise(s)]))


def _noise(s: Subject) -> list[str]:
    """One line for all arms that something disturbed."""
    noisy = [r for r in (s.bench or {}).get("rows", []) if r.get("noise")]
    if not noisy:
        return []
    worst = max(noisy, key=lambda r: len(r["noise"]))
    return [
        f"noisy: {len(noisy)} of {len((s.bench or {})['rows'])} arms were disturbed, such as {worst['arm']}: {'; '.join(worst['noise'])}"
    ]


def _notes(s: Subject) -> Markup | None:
    if not s.notes:
        return None
    rest = s.notes[SHOWN_NOTES:]
    more = tag("details", tag("summary", f"{len(rest)} more"), tag("ul", *(tag("li", n) for n in rest), cls="notes"))
    shown = tag("ul", *(tag("li", n) for n in s.notes[:SHOWN_NOTES]), cls="notes")
    return shown + more if rest else shown


def _warnings(s: Subject) -> Markup | None:
    every = messages(s)
    if not every:
        return None
    serious = s.status in ("crashed", "failed")
    shown = [tag("li", m, cls="bad" if serious and i == 0 else None) for i, m in enumerate(every[:SHOWN_WARNINGS])]
    rest = every[SHOWN_WARNINGS:]
    more = (
        tag("details", tag("summary", f"{len(rest)} more"), tag("ul", *(tag("li", m) for m in rest), cls="warnings"))
        if rest
        else None
    )
    return tag("ul", *shown, cls="warnings") + (more or Markup(""))


def _side_by_side(runs: list[Subject]) -> Markup:
    rows = []
    for s in runs:
        result, training = s.result or {}, s.summary.get("training") or {}
        rows.append(
            [
                s.name,
                s.status,
                result.get("top1"),
                result.get("top5"),
                result.get("AP"),
                result.get("loss"),
                training.get("images_per_s_total"),
                training.get("data_wait_share"),
                s.spent_s.get("total"),
            ]
        )
    columns = [
        Column("run", wrap=True),
        Column("status"),
        Column("top-1 %", 2),
        Column("top-5 %", 2),
        Column("AP", 4),
        Column("loss", 4),
        Column("img/s", 1),
        Column("data wait", meter=True),
        Column("time s", 1),
    ]
    used = [i for i in range(len(columns)) if i < 2 or any(r[i] is not None for r in rows)]
    shown = table("side-by-side", [columns[i] for i in used], [[r[i] for i in used] for r in rows], "Side by side")
    return tag("div", shown, cls="card", style="margin-top:18px")
