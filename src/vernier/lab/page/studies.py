"""Device studies on the page: their analysis, their runs and where each device is; their cards, and their section.

The section shows a study's values by cabinet, node and device, and correlations with sensors.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.reading.columns import ColumnOptions, with_known_names
from vernier.lab.reading.csv_tables import CsvRow, read_csv
from vernier.lab.reading.tables import read_table
from vernier.lab.reading.text import removal_sentence, verdict_in_words
from vernier.lab.study.analysis import DEFAULT_MATTER, METHODS, SENSORS, Measurement, analyze
from vernier.lab.study.files import StudyDir, split_host
from vernier.lab.study.noise import undisturbed
from vernier.lab.study.records import StudyAnalysis
from vernier.measure.what_ran import what_an_old_run_ran
from vernier.records.codec import DamagedRecord, decode
from vernier.references import command, plain
from vernier.report.page.figures import Content, Figure, Section, stacks
from vernier.report.page.html import Column, card, chip, div, note, tag, tile
from vernier.report.page.identity import parts_of_record
from vernier.report.page.numbers import number
from vernier.report.page.subjects import Facts, Kind, Subject
from vernier.store import read_json
from vernier.wording import plural

from .drawing import draw
from .system import SENSOR_TITLES

_STUDY_PARTS = ("network", "image size", "batch", "precision", "mode")
"""What the settings of a study say of what ran."""
MOST_GROUPS, MOST_NAMED = 72, 12  # boxes in a chart, names in a sentence
_UNITS = {"freq": "clock, MHz", "power": "power, W", "temp": "temperature, °C"}


@frozen
class Study(Subject):
    """A device study. `median` is the median device's value, `locations` cabinet and node by device.

    `telemetry` has the first repeat of every device, by device.
    """

    kind: str = "study"
    label = "device study"
    status: str = "finished"
    result: StudyAnalysis
    runs: tuple[Measurement, ...] = ()
    median: float = 1.0
    locations: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    telemetry: tuple[tuple[str, CsvRow], ...] = ()

    def chips(self) -> list[Markup]:
        simulated = [chip("simulated devices", "simulated")] if self.result.simulated else []
        return [*super().chips(), *simulated]

    def facts(self) -> Facts:
        result = self.result
        least, most = result.repeats_per_device.least, result.repeats_per_device.most
        repeats = plural(least, "repeat") if least == most else f"{least} to {most} repeats"
        return [
            ("workload", result.workload),
            ("measured", f"{result.value_name} ({result.what}), in {result.unit}"),
            ("runs", f"{result.runs:,} on {plural(result.devices_measured, 'device')}, {repeats} each"),
            ("study", tag("code", self.path)),
        ]

    def tiles(self) -> list[Markup]:
        result = self.result
        sure, cost = result.outliers.sure, result.straggler
        # The SC22 study's definition, for comparison with its figures.
        variation = result.variation_percent.over_device_medians["fence"]
        return [
            tile("devices", number(result.devices_measured), "", f"{result.runs:,} runs"),
            tile("certainly slow", str(sure.slow), "", f"certainly fast: {sure.fast}"),
            tile("variation", number(variation), "%", "fence to fence, over device medians"),
            tile("straggler's cost", f"{cost.cost:.3f}", "times", f"synchronous training waits for {cost.slowest}"),
        ]

    def messages(self) -> list[str]:
        simulated = (
            "the devices of this study are simulated: they were slowed on purpose, and say nothing about hardware"
        )
        return [simulated] if self.result.simulated else []


def open_study(paths: Sequence[Path], options: ColumnOptions | None = None, matter: float = DEFAULT_MATTER) -> Study:
    """A study from study directories, or from CSV files as `study analyze` reads them with the same options."""
    table = read_table(paths, options)
    studies = [StudyDir.open(path) for path in paths if StudyDir.is_study(path)]
    settings = {k: v for study in studies for k, v in study.meta().settings.items()}
    config = settings.get("config")
    ran = what_an_old_run_ran(config, None, None) if isinstance(config, dict) else None
    parts = parts_of_record([ran] if ran else [])
    return _study(
        paths[0],
        analyze(table, matter),
        runs=table.rows,
        median=statistics.median(table.medians().values()),
        locations={k: v for path in paths for k, v in _locations(path).items()},
        settings=settings,
        parts={part: parts[part] for part in _STUDY_PARTS if part in parts},
        telemetry=tuple(_telemetry(studies)),
    )


def _open_study_result(path: Path) -> Study:
    """A study from what `study analyze --json` printed: devices without their single runs."""
    try:
        return _study(path, decode(StudyAnalysis, read_json(path)))
    except DamagedRecord as error:
        raise ConfigError(
            f"The result of a study is damaged: {error}. Make it again: {command('study analyze', json=True)}."
        ) from None


def _study(path: Path, result: StudyAnalysis, **more: Any) -> Study:
    notes = tuple(map(plain, result.notes))  # a page has no flags: references become settings
    return Study(name=path.resolve().stem, path=path, result=result, notes=notes, **more)


def _locations(path: Path) -> dict[str, tuple[str, str]]:
    """Cabinet and node of each device whose location the study records."""
    if StudyDir.is_study(path):
        return {d.id: (split_host(d.host)[0], d.host) for d in StudyDir.open(path).meta().devices}
    locations = {}
    rows = read_csv(path) if path.suffix == ".csv" else ()
    for row in with_known_names(rows) if rows else ():
        cabinet, node, device = row.get("cabinet"), row.get("node"), row.get("uuid")
        if device is not None and cabinet not in (None, -1, "") and node not in (None, -1, ""):
            locations[str(device)] = (str(cabinet), f"{cabinet}-{node}")
    return locations


def _telemetry(studies: Sequence[StudyDir]) -> Iterator[tuple[str, CsvRow]]:
    for study in studies:
        for repeat in study.repeats():
            if repeat.repeat == 0:
                step = -(-len(repeat.telemetry) // 200) or 1
                yield from ((repeat.device, row) for row in repeat.telemetry[::step])


def _recognizes(path: Path, tree: Any) -> bool:
    """A study directory, a CSV file, or the output of `study analyze --json`."""
    if path.is_dir():
        return StudyDir.is_study(path)
    return path.suffix == ".csv" or (isinstance(tree, dict) and tree.get("method") in METHODS)


# ------------------------------------------------------------------------------------------------------------- section


def devices(studies: list[Study]) -> Content | None:
    runs = [(s.name, [_verdict(s.result)], _study_figures(s), [_table(s.result, i)]) for i, s in enumerate(studies)]
    return stacks("", runs, named=True)


def _flags(result: StudyAnalysis) -> dict[str, str]:
    """A remark per device; empty for those that do not stand out."""
    beyond = {d.device: f"{d.beyond_fence}, beyond the fence" if d.beyond_fence else "" for d in result.devices}
    # A verdict replaces the remark about the fence, which healthy devices can exceed, too.
    return beyond | {d.device: verdict_in_words(d) for d in result.devices if d.verdict or d.stands_out}


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


def _study_figures(study: Study) -> list[Figure | None]:
    flags, result = _flags(study.result), study.result
    boxes = [_boxes(study, level, flags) for level in ("cabinet", "node", "device")]
    disturbed = _disturbed(study)
    scatters = [_scatter(study, sensor, flags, disturbed) for sensor in SENSORS]
    curves = [_study_lines(study, key) for key in SENSOR_TITLES]
    return [*boxes, _ranked(result, flags), _correlation(result), *scatters, *curves]


def _boxes(study: Study, level: str, flags: dict[str, str]) -> Figure | None:
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
    dots = "each dot is a run" if level == "device" else "each dot is a device's median"
    return draw("level", rows, {"level": level, "dots": dots, **_words(study.result)})


def _words(result: StudyAnalysis) -> dict[str, str]:
    return {"value": result.value_name, "what": result.what, "unit": result.unit}


def _ranked(result: StudyAnalysis, flags: dict[str, str]) -> Figure | None:
    devices = enumerate(result.devices, start=1)
    rows = [[i, d.device, d.normalised, d.low, d.high, flags[d.device]] for i, d in devices]
    return draw("ranked", rows, _words(result)) if len(rows) >= 5 else None


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


def _scatter(study: Study, sensor: str, flags: dict[str, str], disturbed: list[str]) -> Figure:
    result = study.result
    rows: list[list[Any]] = [
        [r.sensors[sensor], r.value, r.device, flags[r.device], remark]
        for r, remark in zip(study.runs, disturbed, strict=True)
        if r.sensors.get(sensor) is not None
    ]
    set_aside = sum(bool(row[4]) for row in rows)
    value = result.correlation.pearson[result.correlation.value].get(sensor)  # None if the sensor never changed
    remark = f"correlation {value:+.2f} over {len(rows):,} runs" if value is not None else "constant: no correlation"
    if set_aside:
        remark += f"; {plural(set_aside, 'run')} far from the others of its device can be hidden"
    words = {"sensor": sensor, "title": result.value_name.capitalize(), "remark": remark}
    words |= {"reading": _UNITS[sensor].split(",")[0], "reading_unit": _UNITS[sensor], **_words(result)}
    return draw("against", rows, words, disturbed="disturbed" if set_aside else None)


def _correlation(result: StudyAnalysis) -> Figure | None:
    correlation = result.correlation
    shown = _UNITS | {correlation.value: result.value_name}
    # Without units, which a correlation does not have.
    names = {n: shown[n].split(",")[0] for n in correlation.pearson if n not in correlation.not_measured}
    if len(names) < 2:
        return None
    pearson, spearman = correlation.pearson, correlation.spearman
    return draw("correlation", [[names[a], names[b], pearson[a][b], spearman[a][b]] for a in names for b in names])


def _study_lines(study: Study, key: str) -> Figure:
    rows = [
        [r.get("seconds", r.get("t_s")), device, r[key]]
        for device, r in study.telemetry
        if isinstance(r.get(key), int | float)
    ]
    return draw("study-telemetry", rows, {"sensor": key, "title": SENSOR_TITLES[key]})


def _table(result: StudyAnalysis, number: int) -> Markup:
    values = [Column(name, 3) for name in (f"relative {result.value_name}", "low", "high")]
    first = [Column("device", wrap=True), Column("slower %", 2), Column("verdict", wrap=True)]
    columns: list[Column | str] = [*first, *values, f"{result.value_name}, {result.unit}", "repeats", "beyond fence"]
    rows = [
        [
            *(d.device, d.slower_percent, verdict_in_words(d), d.normalised, d.low, d.high),
            *(d.median, d.repeats, d.beyond_fence or "no"),
        ]
        for d in result.devices
    ]
    return card(f"study-{number}", columns, rows, "Devices", note(result.outliers.rule))


KIND = Kind(
    recognizes=_recognizes,
    read=lambda path, _: [open_study([path]) if path.is_dir() or path.suffix == ".csv" else _open_study_result(path)],
    order=10,
)
SECTION = Section(title="Devices", order=80, of=Study, build=devices)
