"""The first section: a card per subject with what ran where, its result and speed, agreement and warnings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.measure.bench.measuring import LOADER_BOUND_SHARE
from vernier.measure.statistics.agreement import agreement_lines
from vernier.measure.statistics.estimates import share_interval
from vernier.measure.statistics.throughput import Window
from vernier.records.bench import BenchResult, StepRow
from vernier.records.environment import Environment
from vernier.records.events import StartEvent
from vernier.records.study import StudyAnalysis
from vernier.report.live.console import plural
from vernier.report.page.collect import FOREIGN, Subject
from vernier.report.page.figures import Section, make_section
from vernier.report.page.html import Cell, Column, chip, div, facts, number, seconds, table, tag, tile

SHOWN_WARNINGS, SHOWN_NOTES = 8, 3
KIND_LABELS = {"training": "training", "bench": "benchmark", "profile": "profile", "study": "device study"}


def glance(subjects: list[Subject]) -> Section | None:
    cards = [_card(s, i, len(subjects) > 1) for i, s in enumerate(subjects)]
    trainings = [s for s in subjects if s.kind == "training"]
    side_by_side = _side_by_side(trainings) if len(trainings) > 1 else None
    return make_section("glance", "At a glance", "", div("runs", *cards), side_by_side)


def _card(subject: Subject, index: int, several: bool) -> Markup:
    mark = tag("span", cls=f"mark c{index % 8}", aria_hidden="true") if several else None
    status = f"foreign: {FOREIGN[subject.format]}" if subject.foreign else subject.status
    chips = [chip(KIND_LABELS[subject.kind]), chip(status, subject.status)]
    if subject.simulated:
        chips.append(chip("simulated devices", "simulated"))
    return tag(
        "article",
        div("run-head", mark, tag("h3", subject.name)),
        div("chips", *chips),
        facts(_facts(subject)),
        tag("dl", *_tiles(subject), cls="tiles"),
        _agreement(subject),
        _list(
            messages(subject), SHOWN_WARNINGS, "warnings", "bad" if subject.status in ("crashed", "failed") else None
        ),
        _list(subject.notes, SHOWN_NOTES, "notes"),
        cls="card",
    )


# --------------------------------------------------------------------------------------------------------- what, where


def _facts(s: Subject) -> list[tuple[str, Any]]:
    if s.study:
        return _study_facts(s.study.result, s.path)
    start = s.start or StartEvent()
    if s.foreign:
        names = ("arch", "model", "submission_benchmark", "submission_platform", "batch_size")
        settings = [(name, s.settings[name]) for name in names if s.settings.get(name)]
        return [*settings, ("devices", start.world or "not in the log"), ("log", tag("code", s.path))]
    recipe = s.settings.get("recipe") or {}
    model, data = recipe.get("model") or {}, recipe.get("data") or {}
    sizes = f", {start.parameters:,} parameters, {plural(start.classes, 'class')}" if start.parameters else ""
    validation = f" and {start.val_samples:,} validation" if start.val_samples else ""
    images = f": {start.train_samples:,} training{validation} images" if start.train_samples else ""
    return [
        ("model", f"{model.get('name', '')}{sizes}"),
        ("data", f"{data.get('source', '')}{images}"),
        ("schedule", _schedule(s, start)),
        ("machine", _machine(s)),
        ("run", tag("code", s.path)),
        ("started", (start.time or "")[:16].replace("T", " ")),
    ]


def _schedule(s: Subject, start: StartEvent) -> str:
    if not start.total_steps:
        return ""
    done = max((p.step for p in s.points), default=0)
    cut = f", to stop at {start.stop_step:,}" if start.stop_step < start.total_steps else ""
    size = f"{start.epochs:g} epochs of {plural(start.steps_per_epoch, 'step')}, batch {start.global_batch:,}"
    return f"{size}; {done:,} of {start.total_steps:,} steps{cut}"


def _machine(s: Subject) -> str:
    e, environment = s.start, s.environment or Environment()
    names = dict.fromkeys(d.name for d in environment.devices if d.name)
    processes = (
        f"{plural(e.world, 'process')} x {plural(e.threads, 'thread')}, {e.precision}, {e.mode}" if e and e.mode else ""
    )
    host = f"host {environment.host}" if environment.host else ""
    return "; ".join(filter(None, [", ".join(names) or environment.device_kind, processes, host]))


def _study_facts(result: StudyAnalysis, path: Path) -> list[tuple[str, Any]]:
    least, most = result.repeats_per_device.least, result.repeats_per_device.most
    repeats = plural(least, "repeat") if least == most else f"{least} to {most} repeats"
    return [
        ("workload", result.workload),
        ("measured", f"{result.value_name} ({result.what}), in {result.unit}"),
        ("runs", f"{result.runs:,} on {plural(result.devices_measured, 'device')}, {repeats} each"),
        ("study", tag("code", path)),
    ]


# --------------------------------------------------------------------------------------------------------------- tiles


def _tiles(s: Subject) -> list[Markup]:
    if s.study:
        return _study_tiles(s.study.result)
    if s.bench:
        return _bench_tiles(s.bench)
    return [*_result_tiles(s), *_speed_tiles(s), *_time_tiles(s), *_profile_tiles(s)]


def _result_tiles(s: Subject) -> list[Markup]:
    result = s.result
    if not result:
        return []
    figures, part = result.figures, "" if result.exact else ", part of the set"
    top1, top5 = figures.get("top1"), figures.get("top5")
    if top1 is not None:
        more = [_share_tile("top-5", top5, result.samples)] if top5 else []
        return [_share_tile("top-1", top1, result.samples, part), *more]
    ap = figures.get("AP")
    if ap is not None:
        images = f"{result.samples:,} images{part}" if result.samples else ""
        return [
            tile("AP (IoU 0.50 to 0.95)", f"{ap:.3f}", "", images),
            tile("AP50", number(figures.get("AP50"), 3)),
        ]
    return [tile(k, number(v)) for k, v in figures.items() if k == "eval_accuracy"]


def _share_tile(name: str, value: float, n: int, part: str = "") -> Markup:
    """A percentage with the interval for another draw of as many images; another training run may differ by more."""
    if not n or not 0 <= value <= 100:
        return tile(name, f"{value:.2f}", "%")
    low, high = share_interval(round(value * n / 100), n)
    return tile(name, f"{value:.2f}", "%", f"95 %: {100 * low:.1f} to {100 * high:.1f}, {n:,} images{part}")


def _speed_tiles(s: Subject) -> list[Markup]:
    speed = s.summary.training
    if speed is None:
        total = Window.total(p.window for p in s.points)
        name = "throughput so far" if s.status == "running" else "throughput"
        rate = number(total.samples_per_s)
        return [tile(name, rate, "img/s", "all recorded steps, warm-up included")] if total.samples_per_s else []
    between = _between(*speed.images_per_s_total_95) or "no interval: too few steps"
    tiles = [tile("throughput", number(speed.images_per_s_total), "img/s", f"{between}; data included")]
    if speed.energy:
        tiles.append(tile("energy", number(speed.energy.joules_per_image), "J/img", speed.energy.method))
    if speed.data_wait_share is not None:
        tiles.append(tile("data wait", f"{100 * speed.data_wait_share:.1f}", "%", "of the steps' time"))
    return tiles


def _between(low: float | None, high: float | None) -> str:
    """A 95 % interval; empty without a lower end, and open above where there are few measurements."""
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
    total, remark = s.spent_s.get("total"), "so far" if s.status == "running" else ""
    return [tile("time", seconds(total), "", remark)] if total else []


def _bench_tiles(bench: BenchResult) -> list[Markup]:
    rates = [r for r in bench.measured if isinstance(r, StepRow) and r.exchange is None]
    tiles = []
    if rates:
        best = max(rates, key=lambda r: r.images_per_s_total.value)
        rate = best.images_per_s_total
        between = _between(rate.low, rate.high) or f"no interval: {rate.basis}"
        tiles.append(tile("fastest", number(rate.value), "img/s", f"{between}; {best.arm}"))
    medians_s = [(r.latency_s.percentiles["p50"].value, r.arm) for r in bench.measured if r.latency_s]
    if medians_s:
        median_s, arm = min(medians_s)
        tiles.append(tile("lowest median latency", number(1000 * median_s), "ms", arm))
    return [*tiles, tile("arms", str(len(bench.rows)), "", f"{len(bench.measured)} measured")]


def _study_tiles(result: StudyAnalysis) -> list[Markup]:
    sure, cost = result.outliers.sure, result.straggler
    variation = result.variation_percent.over_device_medians["fence"]
    return [
        tile("devices", number(result.devices_measured), "", f"{result.runs:,} runs"),
        tile("certainly slow", str(sure.slow), "", f"certainly fast: {sure.fast}"),
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
    agreement = s.summary.agreement
    if not agreement:
        return None
    verdict, differs = agreement_lines(agreement)
    return div(
        "agree",
        chip(VERDICTS[agreement.verdict], agreement.verdict),
        verdict.removeprefix("published").strip(),
        tag(
            "details",
            tag("summary", "what was done differently"),
            tag("p", differs.removeprefix("differs").strip(), cls="note"),
        ),
    )


def messages(s: Subject) -> list[str]:
    """What a reader must know, most important first."""
    texts = []
    if s.status == "crashed":
        texts.append("this run crashed: the page shows what it recorded until then")
    if s.reason:
        texts.append(s.reason)
    share = (s.summary.training and s.summary.training.data_wait_share) or 0.0
    if share > LOADER_BOUND_SHARE:
        texts.append(f"loader-bound: {100 * share:.0f} % of the steps' time was spent waiting for data")
    if s.disturbances:
        texts.append(f"noisy: {'; '.join(s.disturbances)}")
    if s.simulated:
        texts.append(
            "the devices of this study are simulated: they were slowed on purpose, and say nothing about hardware"
        )
    if bad := s.summary.bad_images:
        texts.append(f"{plural(len(bad), 'bad image')}, the first is {bad[0].path}: {bad[0].reason}")
    return list(dict.fromkeys([*texts, *s.warnings, *_noisy_arms(s)]))


def _noisy_arms(s: Subject) -> list[str]:
    """One line for all disturbed arms of a benchmark."""
    noisy = [r for r in s.bench.measured if r.noise] if s.bench else []
    if not s.bench or not noisy:
        return []
    worst = max(noisy, key=lambda r: len(r.noise))
    arms = f"{len(noisy)} of {len(s.bench.rows)} arms were disturbed"
    return [f"noisy: {arms}, such as {worst.arm}: {'; '.join(worst.noise)}"]


def _list(texts: Sequence[str], most: int, cls: str, first_cls: str | None = None) -> Markup | None:
    """A list of texts; those after the first `most` are folded away."""
    if not texts:
        return None
    items = [tag("li", text, cls=first_cls if i == 0 else None) for i, text in enumerate(texts)]
    shown, rest = tag("ul", *items[:most], cls=cls), items[most:]
    return shown + tag("details", tag("summary", f"{len(rest)} more"), tag("ul", *rest, cls=cls)) if rest else shown


def _side_by_side(runs: list[Subject]) -> Markup:
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
    rows: list[list[Cell]] = [
        [
            s.name,
            s.status,
            *(s.figure(name) for name in ("top1", "top5", "AP", "loss")),
            *((speed.images_per_s_total, speed.data_wait_share) if (speed := s.summary.training) else (None, None)),
            s.spent_s.get("total"),
        ]
        for s in runs
    ]
    used = [i for i in range(len(columns)) if i < 2 or any(r[i] is not None for r in rows)]
    shown = table("side-by-side", [columns[i] for i in used], [[r[i] for i in used] for r in rows], "Side by side")
    return div("card", shown, style="margin-top:18px")
