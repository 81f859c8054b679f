"""The devices section: a study's values by cabinet, node and device, and correlations with sensors."""

import statistics
from typing import Any

import numpy as np
from markupsafe import Markup

from vernier.measure.study.analysis import SENSORS
from vernier.measure.study.noise import undisturbed
from vernier.records.study import StudyAnalysis
from vernier.report.page.collect import Subject
from vernier.report.page.figures import Boxes, Figure, Heat, Lines, Scatter, Section, grid, make_section, with_data
from vernier.report.page.html import Column, div, table, tag
from vernier.report.page.studies import Study
from vernier.report.study.text import removal_sentence, verdict_in_words
from vernier.wording import plural

from .system import SENSOR_TITLES

MOST_GROUPS, MOST_NAMED = 72, 12  # boxes in a chart, names in a sentence
UNITS = {"freq": "clock, MHz", "power": "power, W", "temp": "temperature, °C"}


def devices(subjects: list[Subject]) -> Section | None:
    figures: list[Figure] = []
    parts: list[Markup] = []
    for number, (name, study) in enumerate((s.name, s.study) for s in subjects if s.study):
        charts = _study_figures(study, number)
        figures += charts
        head = tag("h3", name, style="margin-bottom:10px")
        body = (head, _verdict(study.result), grid(charts), _table(study.result, number))
        parts.append(div("stack", *body, style="margin-bottom:26px"))
    if not parts:
        return None
    return make_section("devices", "Devices", "", *parts, figures=figures)


# -------------------------------------------------------------------------------------------------------------- studies


def _flags(result: StudyAnalysis) -> dict[str, str]:
    """A remark per device; empty for those that do not stand out."""
    beyond = {d.device: f"{d.beyond_fence}, beyond the fence" if d.beyond_fence else "" for d in result.devices}
    # A verdict replaces the remark about the fence, which healthy devices can exceed, too.
    return beyond | {d.device: verdict_in_words(d) for d in result.devices if d.verdict}


def _verdict(result: StudyAnalysis) -> Markup:
    pull, cost, split = result.pull, result.straggler, result.variance.undisturbed_runs
    more = f" and {len(pull) - MOST_NAMED} more" if len(pull) > MOST_NAMED else ""
    slow = f"slow: {', '.join(pull[:MOST_NAMED])}{more}" if pull else "slow: no device"
    text = (
        f"Synchronous training over all devices takes {cost.cost:.3f} times the median device's step time; "
        f"the slowest single run took {cost.slowest_run_over_median:.2f} times the median."
    )
    text += f" {removal_sentence(result)}" if pull else ""
    if split:
        text += (
            f" Between devices {split.between_devices.value:.2f} % (sd), "
            f"between repeats of one device {split.between_repeats.value:.2f} %."
        )
    return div("agree", tag("p", tag("strong", slow)), tag("p", text))


def _study_figures(study: Study, number: int) -> list[Figure]:
    flags, result = _flags(study.result), study.result
    boxes = [_boxes(study, level, flags, number) for level in ("cabinet", "node", "device")]
    disturbed = _disturbed(study)
    scatters = [_scatter(study, sensor, flags, disturbed, number) for sensor in SENSORS]
    curves = [_study_lines(study, key, number) for key in SENSOR_TITLES]
    return with_data(*boxes, _ranked(result, flags, number), _correlation(result, number), *scatters, *curves)


def _over_median(result: StudyAnalysis) -> str:
    return f"{result.value_name} over the median device's"


def _boxes(study: Study, level: str, flags: dict[str, str], number: int) -> Figure | None:
    """Every run of a device; of a node or cabinet, the medians of its devices."""
    rows: list[list[Any]]
    if level == "device":
        rows = [[r.device, r.device, r.value / study.median, flags[r.device]] for r in study.runs]
    else:
        # `names` is (cabinet, node): the comparison is its index.
        groups_by_device = {device: names[level == "node"] for device, names in study.locations.items()}
        rows = [
            [group, d.device, d.normalised, flags[d.device]]
            for d in study.result.devices
            if (group := groups_by_device.get(d.device))
        ]
    groups = {r[0] for r in rows}
    if not 2 <= len(groups) <= MOST_GROUPS:  # one box compares nothing
        return None
    middle = {g: statistics.median_high(r[2] for r in rows if r[0] == g) for g in groups}
    # Cabinets and nodes by name: neighbors in the machine room stay neighbors in the chart.
    rows.sort(key=lambda r: (-middle[r[0]] if level == "device" else 0, str(r[0])))
    value = f"relative {study.result.value_name}"
    dots = "each dot is a run" if level == "device" else "each dot is a device's median"
    return Figure(
        name=f"{level}-{number}",
        title=f"By {level}",
        chart=Boxes(
            category=level, value=value, name="which", flag="remark", line=1.0, x_title=_over_median(study.result)
        ),
        columns=[level, "which", value, "remark"],
        rows=rows,
        wide=True,
        caption=f"{study.result.what}, divided by the median over devices; {dots}; box: quartiles; "
        "whiskers: within 1.5 times the box; coloured: outliers",
    )


def _ranked(result: StudyAnalysis, flags: dict[str, str], number: int) -> Figure | None:
    if len(result.devices) < 5:
        return None
    value = f"relative {result.value_name}"
    return Figure(
        name=f"ranked-{number}",
        title="Devices, slowest first",
        chart=Scatter(
            x="rank",
            y=value,
            low="low",
            high="high",
            name="device",
            flag="remark",
            line=1.0,
            x_title="rank, slowest first",
            y_title=_over_median(result),
        ),
        columns=["rank", "device", value, "low", "high", "remark"],
        rows=[
            [i, d.device, d.normalised, d.low, d.high, flags[d.device]] for i, d in enumerate(result.devices, start=1)
        ],
        caption="median of its repeats with 95 % interval",
    )


def _disturbed(study: Study) -> list[str]:
    """For each run, whether it is far from its device's other runs."""
    runs_by_device: dict[str, list[int]] = {}  # positions in study.runs, to map the result back
    for i, run in enumerate(study.runs):
        runs_by_device.setdefault(run.device, []).append(i)
    # [devices][runs], of different lengths.
    values = [np.array([study.runs[i].value for i in runs]) for runs in runs_by_device.values()]
    # A disturbed run is slow: a high time, a low rate.
    calm = undisturbed(values, slow_is_high=study.result.value_name == "step time")
    remarks = [""] * len(study.runs)
    for runs, is_calm in zip(runs_by_device.values(), calm, strict=True):
        for i, ok in zip(runs, is_calm, strict=True):
            remarks[i] = "" if ok else "disturbed"
    return remarks


def _scatter(study: Study, sensor: str, flags: dict[str, str], disturbed: list[str], number: int) -> Figure:
    result = study.result
    rows: list[list[Any]] = [
        [r.sensors[sensor], r.value, r.device, flags[r.device], remark]
        for r, remark in zip(study.runs, disturbed, strict=True)
        if r.sensors.get(sensor) is not None
    ]
    set_aside = sum(bool(row[4]) for row in rows)
    value = result.correlation.pearson[result.correlation.value].get(sensor)  # None if the sensor never changed
    remark = f"correlation {value:+.2f} over {len(rows):,} runs" if value is not None else "constant: no correlation"
    return Figure(
        name=f"against-{sensor}-{number}",
        title=f"{result.value_name.capitalize()} against {UNITS[sensor].split(',')[0]}",
        chart=Scatter(
            x=UNITS[sensor],
            y=result.unit,
            flag="remark",
            name="",
            disturbed="disturbed" if set_aside else None,
            y_title=f"{result.value_name}, {result.unit}",
        ),
        columns=[UNITS[sensor], result.unit, "device", "remark", "disturbed"],
        rows=rows,
        caption=f"{result.what}; {remark}"
        + (f"; {plural(set_aside, 'run')} far from the others of its device can be hidden" if set_aside else ""),
    )


def _correlation(result: StudyAnalysis, number: int) -> Figure | None:
    correlation = result.correlation
    shown = UNITS | {correlation.value: result.value_name}
    # Without units, which a correlation does not have.
    names = {n: shown[n].split(",")[0] for n in correlation.pearson if n not in correlation.not_measured}
    if len(names) < 2:
        return None
    return Figure(
        name=f"correlation-{number}",
        title="Correlations",
        chart=Heat(row="this", column="with", value="Pearson", diverging=True, most=1, cell=96),
        columns=["this", "with", "Pearson", "Spearman"],
        rows=[
            [names[a], names[b], correlation.pearson[a][b], correlation.spearman[a][b]] for a in names for b in names
        ],
        caption="Pearson's correlation over runs; orange: positive, blue: negative",
    )


def _study_lines(study: Study, key: str, number: int) -> Figure:
    rows = [
        [r.get("seconds", r.get("t_s")), device, r[key]]
        for device, r in study.telemetry
        if isinstance(r.get(key), int | float)
    ]
    return Figure(
        name=f"study-{key}-{number}",
        title=SENSOR_TITLES[key],
        chart=Lines(x="s", y=key, by="device", x_title="s since the repeat began", y_title=""),
        columns=["s", "device", key],
        rows=rows,
        caption="first repeat of each device",
    )


def _table(result: StudyAnalysis, number: int) -> Markup:
    devices = table(
        f"study-{number}",
        [
            Column("device", wrap=True),
            Column("slower %", 2),
            Column("verdict", wrap=True),
            *(Column(name, 3) for name in (f"relative {result.value_name}", "low", "high")),
            f"{result.value_name}, {result.unit}",
            "repeats",
            "beyond fence",
        ],
        [
            [
                *(d.device, d.slower_percent, verdict_in_words(d), d.normalised, d.low, d.high),
                *(d.median, d.repeats, d.beyond_fence or "no"),
            ]
            for d in result.devices
        ],
        "Devices",
    )
    return div("card", devices, tag("p", result.outliers.rule, cls="note"))
