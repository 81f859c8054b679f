"""The first section: a card per subject with what ran where, its result and speed, agreement and warnings."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.measure.bench.measuring import LOADER_BOUND_SHARE
from vernier.measure.bench.table import UNKNOWN_RATE_FACTOR, is_unknown
from vernier.measure.published.standing import speed_lines
from vernier.measure.statistics.agreement import agreement_lines
from vernier.measure.statistics.estimates import share_interval
from vernier.measure.telemetry.noise import describe_noise
from vernier.records.bench import BenchResult, StepRow
from vernier.records.environment import Environment
from vernier.records.events import StartEvent
from vernier.records.study import StudyAnalysis
from vernier.records.what_ran import line_of
from vernier.report.logs.work import NOT_IN_LOG
from vernier.report.page.collect import FOREIGN, Subject
from vernier.report.page.figures import COLOURS, Section, make_section
from vernier.report.page.html import (
    chip,
    div,
    facts,
    joined,
    tag,
    tile,
)
from vernier.report.page.identity import differing_parts
from vernier.report.page.numbers import measured, number, seconds, size_of, when
from vernier.wording import plural

SHOWN_WARNINGS, SHOWN_NOTES = 8, 3  # the rest is folded away, not dropped
TOP5_CLASSES = 50
"""With fewer classes, five guesses are more than a tenth of them, and top-5 says little."""
KIND_LABELS = {"training": "training", "bench": "benchmark", "profile": "profile", "study": "device study"}


def glance(subjects: list[Subject]) -> Section | None:
    differing = differing_parts([s.parts for s in subjects])
    cards = [_card(s, i if len(subjects) > 1 else None, differing) for i, s in enumerate(subjects)]
    return make_section("glance", "At a glance", "", div("runs", *cards))


def _card(subject: Subject, colour: int | None = None, differing: Sequence[str] = ()) -> Markup:
    """A card; with a colour where there are several, and then with those parts of what ran in which they differ."""
    # The position among the subjects, as in the legends of the charts.
    mark = None if colour is None else tag("span", cls=f"mark c{colour % COLOURS}", aria_hidden="true")
    status = f"foreign: {FOREIGN.get(subject.format, subject.format)}" if subject.foreign else subject.status
    chips = [chip(KIND_LABELS[subject.kind]), chip(status, subject.status)]
    if subject.smoke:
        chips.append(chip("SMOKE RUN: its figures mean nothing", "failed"))
    if subject.simulated:
        chips.append(chip("simulated devices", "simulated"))
    known_parts = [(part, text) for part in differing if (text := subject.parts.get(part, "")) != NOT_IN_LOG]
    return tag(
        "article",
        div("run-head", mark, tag("h3", subject.name)),
        div("chips", *chips),
        tag("p", subject.note, cls="user-note") if subject.note else None,
        facts([*known_parts, *_facts(subject)]),
        tag("dl", *_tiles(subject), cls="tiles"),
        _agreement(subject),
        _list(speed_lines(subject.summary.published_speeds), SHOWN_NOTES, "notes"),
        _list(
            messages(subject), SHOWN_WARNINGS, "warnings", "bad" if subject.status in ("crashed", "failed") else None
        ),
        _list(subject.notes, SHOWN_NOTES, "notes"),
        _in_one_line(subject),
        cls="card",
    )


def _in_one_line(s: Subject) -> Markup | None:
    """What ran, folded away: the page's head has it too. Open where it was not recorded."""
    if s.study:
        return None
    return tag(
        "details", tag("summary", "what ran, in one line"), tag("p", what_ran(s), cls="ran"), open=not s.recorded
    )


# --------------------------------------------------------------------------------------------------------- what, where


def what_ran(s: Subject) -> str:
    """The line that says what ran; of another system's log, what it says and what it does not."""
    if s.foreign:
        missing = [name for name, text in s.parts.items() if text == NOT_IN_LOG]
        line = " · ".join(text for text in s.parts.values() if text not in ("", NOT_IN_LOG))
        return f"{line}; {NOT_IN_LOG}: {', '.join(missing)}" if missing else line
    if s.recorded:
        return line_of(s.ran)
    return f"What ran was not recorded; from the settings: {line_of(s.ran)}" if s.ran else "What ran was not recorded."


def _facts(s: Subject) -> list[tuple[str, Any]]:
    if s.study:
        return _study_facts(s.study.result, s.path)
    start = s.start or StartEvent()
    if s.foreign:
        missing = ", ".join(name for name, text in s.parts.items() if text == NOT_IN_LOG)
        return [("log", tag("code", s.path)), ("started", when(start.time)), (NOT_IN_LOG, missing)]
    recipe = (s.settings.get("recipe") or {}).get("name", "")
    validation = f" and {start.val_samples:,} validation" if start.val_samples else ""
    return [
        ("recipe", recipe if recipe != s.name else ""),  # many runs are named after their recipe: not twice on a card
        ("images", f"{start.train_samples:,} training{validation} images" if start.train_samples else ""),
        ("schedule", _schedule(s, start)),
        ("machine", _machine(s)),
        ("run", tag("code", s.path)),
        ("started", when(start.time)),
        ("ended", when(s.updated) if s.status != "running" else ""),  # `updated` of a running run is not its end
        ("memory", _memory(s)),
        ("took", seconds(total) if s.bench and (total := (s.bench.spent_s or {}).get("total")) else ""),
    ]


def _memory(s: Subject) -> str:
    """The measured peak beside the predicted one."""
    memory = s.summary.memory
    if memory is None:
        return ""
    measured = f"{size_of(memory.measured_bytes)} at the peak of a process; " if memory.measured_bytes else ""
    return f"{measured}{size_of(memory.predicted_bytes)} predicted"


def _schedule(s: Subject, start: StartEvent) -> str:
    if not start.total_steps:
        return ""
    done = max((p.step or 0 for p in s.points), default=0)
    # Limits can end a run before its schedule does.
    cut = f", to stop at {start.stop_step:,}" if start.stop_step < start.total_steps else ""
    epochs = "1 epoch" if start.epochs == 1 else f"{start.epochs:g} epochs"
    size = f"{epochs} of {plural(start.steps_per_epoch, 'step')}, batch {start.global_batch:,}"
    return f"{size}; {done:,} of {start.total_steps:,} steps{cut}"


def _machine(s: Subject) -> str:
    """What the line about what ran does not say of the machine."""
    start, environment = s.start, s.environment or Environment()
    cpu, python = environment.cpu, environment.versions.get("python")
    parts = [
        f"{plural(start.world, 'process')} x {plural(start.threads, 'thread')}" if start and start.mode else "",
        f"{plural(cpu.cores_logical, 'core')}, {size_of(cpu.memory_bytes)} of memory" if cpu.cores_logical else "",
        f"host {environment.host}" if environment.host else "",
        environment.system,
        f"Python {python}" if python else "",
    ]
    return "; ".join(filter(None, parts))


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
    # `exact` is False if only a part of the validation set was evaluated.
    figures, part = result.figures, "" if result.exact else ", part of the set"
    top1, top5 = figures.get("top1"), figures.get("top5")
    if top1 is not None:
        more = [_share_tile("top-5", top5, result.samples)] if top5 and shows_top5(s) else []
        return [_share_tile("top-1", top1, result.samples, part), *more]
    ap = figures.get("AP")
    if ap is not None:
        images = f"{result.samples:,} images{part}" if result.samples else ""
        ap50 = [tile("AP50", number(figures["AP50"], 3))] if figures.get("AP50") is not None else []
        return [tile("AP (IoU 0.50 to 0.95)", f"{ap:.3f}", "", images), *ap50]
    return [tile("accuracy as the log gives it", number(v)) for k, v in figures.items() if k == "eval_accuracy"]


def shows_top5(s: Subject) -> bool:
    """Whether top-5 says anything: from some number of classes on, or where that number is not known."""
    # External logs have no start event with classes; NVIDIA's have num_classes among their settings.
    classes = (s.start.classes if s.start else 0) or s.settings.get("num_classes") or TOP5_CLASSES
    return not isinstance(classes, int) or classes >= TOP5_CLASSES  # a setting of an external log can be anything


def _share_tile(name: str, value: float, n: int, part: str = "") -> Markup:
    """A percentage with the interval for another draw of as many images; another training run may differ by more."""
    if not n or not 0 <= value <= 100:  # an external log can claim any number
        return tile(name, f"{value:.2f}", "%")
    # Wilson's interval for the number of correct predictions, which the percentage gives back exactly.
    low, high = share_interval(round(value * n / 100), n)
    digits = min(2, max(0, math.ceil(math.log10(n / 100))))  # what one image more or less changes
    return tile(name, f"{value:.{digits}f}", "%", f"95 %: {100 * low:.1f} to {100 * high:.1f}, {n:,} images{part}")


def _speed_tiles(s: Subject) -> list[Markup]:
    speed = s.summary.training
    if speed is None:
        rate = s.images_per_s[0] if s.images_per_s else 0.0
        # No summary yet, or an external log. Windows of a Vernier run do not mark the warm-up, so it is included.
        name = "throughput so far" if s.status == "running" else "throughput"
        unknown = s.foreign and not (s.start and s.start.world)
        devices = f"; over all devices, whose number is {NOT_IN_LOG}" if unknown else ""
        remark = f"recorded steps{' after the warm-up' if s.foreign else ', warm-up included'}{devices}"
        return [tile(name, measured(rate, None, None)[0], "img/s", remark)] if rate else []
    figure, between = measured(speed.images_per_s_total, *speed.images_per_s_total_95)
    why = speed.step_s.basis if speed.step_s is not None and speed.step_s.basis else "too few steps"
    tiles = [tile("throughput", figure, "img/s", joined([_interval(between, why), "; data included"]))]
    if speed.energy:
        tiles.append(tile("energy", number(speed.energy.joules_per_image), "J/img", speed.energy.method))
    if speed.data_wait_share is not None:
        tiles.append(tile("data wait", f"{100 * speed.data_wait_share:.1f}", "%", "of the steps' time"))
    return tiles


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
    # Without arms that skip the gradient all-reduce: they are references for scaling, not training speeds.
    rates = [r for r in bench.measured if isinstance(r, StepRow) and r.exchange is None]
    tiles = []
    if rates:
        best = max(rates, key=lambda r: r.images_per_s_total.value)
        rate = best.images_per_s_total
        figure, between = measured(rate.value, rate.low, rate.high)
        remark = _interval(between, rate.basis)
        if is_unknown(rate):  # the ends of so wide an interval would be read as if they were measured
            remark = f"not known: the interval reaches {UNKNOWN_RATE_FACTOR} times that"
        name = "throughput" if len(rates) == 1 else f"fastest, {_arm(best.arm)}"
        tiles.append(tile(name, figure, "img/s", remark))
    # Only arms that measured single queries have latencies.
    latencies = [(r.latency_s.percentiles.get("p50"), r.arm) for r in bench.measured if r.latency_s]
    medians = [(median, arm) for median, arm in latencies if median is not None]
    if medians:
        median, arm = min(medians, key=lambda m: m[0].value)
        ends = (None if end is None else 1000 * end for end in (median.low, median.high))
        figure, between = measured(1000 * median.value, *ends)
        name = "median latency" if len(medians) == 1 else f"lowest median latency, {_arm(arm)}"
        tiles.append(tile(name, figure, "ms", between))
    failed = len(bench.rows) - len(bench.measured)
    return [*tiles, tile("arms", str(len(bench.rows)), "", f"{failed} not measured" if failed else "all measured")]


def _interval(between: str, why: str) -> Markup | str:
    """The interval, or that there is none; the reason, which is long, for readers who point at it."""
    return between or tag("span", "no interval", title=why)


def _arm(name: str) -> str:
    """`batch=4 scenario=server` as people say it: batch 4, scenario server."""
    return ", ".join(part.replace("=", " ") for part in name.split())


def _study_tiles(result: StudyAnalysis) -> list[Markup]:
    sure, cost = result.outliers.sure, result.straggler
    # The SC22 study's definition, for comparison with its figures.
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
    if s.smoke:
        texts.append("a smoke run: a try-out of the settings on a few images; its figures mean nothing")
    if s.status == "crashed":
        texts.append("this run crashed: the page shows what it recorded until then")
    if s.reason:
        texts.append(s.reason)
    share = (s.summary.training and s.summary.training.data_wait_share) or 0.0
    if share > LOADER_BOUND_SHARE:  # the limit of the benchmarks' verdict, so that both agree
        texts.append(f"loader-bound: {100 * share:.0f} % of the steps' time was spent waiting for data")
    if s.disturbances:
        texts.append(f"noisy: {'; '.join(s.disturbances)}")
    for profile in s.profiles:
        if noise := describe_noise(profile.summary.noise) if profile.summary.noise else []:
            texts.append(f"noisy while profiling: {'; '.join(noise)}")
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
    worst = max(noisy, key=lambda r: len(r.noise))  # one example here; the benchmarks section lists every arm
    count = len(s.bench.rows)
    arms = "" if count == 1 else f"{len(noisy)} of {count} arms were disturbed, such as {worst.arm}: "
    return [f"noisy: {arms}{'; '.join(worst.noise)}"]


def _list(texts: Sequence[str], most: int, cls: str, first_cls: str | None = None) -> Markup | None:
    """A list of texts; those after the first `most` are folded away."""
    if not texts:
        return None
    items = [tag("li", text, cls=first_cls if i == 0 else None) for i, text in enumerate(texts)]
    shown, rest = tag("ul", *items[:most], cls=cls), items[most:]
    return shown + tag("details", tag("summary", f"{len(rest)} more"), tag("ul", *rest, cls=cls)) if rest else shown
