"""Studies of many devices: `vernier study` and the functions of that name.

What is measured and computed is `lab.study`'s; files of others are read by `lab.reading`.
"""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier import recipes
from vernier.api.display import frame
from vernier.api.functions import function
from vernier.api.runs import data_frame
from vernier.api.session import Session
from vernier.api.starting import sigterm_as_interrupt, silence_profiler
from vernier.api.wording import PythonWords
from vernier.clock import file_stamp
from vernier.config import to_dict
from vernier.devices import resolve
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.reading.columns import FIELDS, ColumnOptions, parse_pairs, parse_units
from vernier.lab.reading.tables import read_table
from vernier.lab.reading.text import study_lines, study_rows
from vernier.lab.records.bench import EXACT, ConfigTree
from vernier.lab.report.progress import StudyDisplay
from vernier.lab.requests.studies import StudyAnalyze, StudyBaseline, StudyCheck, StudyDesign, StudyMerge, StudyRun
from vernier.lab.study.analysis import Table, analyze
from vernier.lab.study.baseline import check, learn, read_baseline, write_baseline
from vernier.lab.study.design import DesignAnswer, FleetSettings, answer, spreads_of
from vernier.lab.study.files import StudyDir, merge
from vernier.lab.study.records import Baseline, CheckResult, DeviceVerdict, StudyAnalysis
from vernier.lab.study.votes import vote
from vernier.quantities import fraction, parse_duration
from vernier.references import given, use
from vernier.requests.wording import PROGRAM, command_line
from vernier.wording import plural

if TYPE_CHECKING:
    from pandas import DataFrame


_RUNS = Path("runs")
_TRAINED = {"resnet50": "study-resnet50", "shapes": "shapes-quick", EXACT: "shapes-quick"}
"""The recipes of workloads that train."""
_FINGERPRINTS = 20
_SPREAD, _NOISE = 0.006, 0.008
"""Assumed of devices and repeats if there is no pilot: those of typical accelerators."""


# ------------------------------------------------------------------------------------------------------------ measuring


@frozen
class MeasuredStudy:
    """A study that was measured: its directory, and how many devices and repeats it has."""

    study: Path
    devices: int
    repeats: int
    simulated: bool


def run_study(request: StudyRun, session: Session) -> MeasuredStudy:
    """Measure every device of this machine. Raises ConfigError before anything is measured."""
    from vernier.lab.study import run

    silence_profiler()
    settings = run.StudySettings(
        workload=request.workload,
        iterations=request.iterations,
        repeats=request.repeats,
        batch=request.batch,
        device=request.device or "auto",
        virtual=request.virtual,
        slow=run.parse_slow(request.slow) if request.slow else (),
        pause_s=parse_duration(request.pause),
        seed=request.seed,
        kernel_iterations=request.kernels,
        config=_training_config(request),
    )
    device = resolve(settings.device)
    targets = run.find_targets(settings, device)
    interrupted = None if request.out else StudyDir.find_interrupted(_RUNS, run.plan_study(settings, targets))
    path = Path(request.out or interrupted or _RUNS / f"{file_stamp()}-study-{request.workload}")
    with StudyDisplay(session, settings, len(targets)) as display, sigterm_as_interrupt():
        try:
            study = run.collect(settings, targets, device.name, path, display)
        except KeyboardInterrupt:
            # Repeats are saved as they finish: the same command continues after them.
            session.warn(_describe_interruption(request, path))
            raise
    return MeasuredStudy(
        study=study.path, devices=len(targets), repeats=len(study.repeats()), simulated=request.virtual > 0
    )


def _training_config(request: StudyRun) -> "ConfigTree | None":
    """What the workload trains: ResNet-50 on one fixed batch, so that all inputs are equal, or the built-in recipe."""
    if request.workload not in _TRAINED:
        if request.precision is not None:
            raise ConfigError(
                f"{given('machine.precision', request.precision)} is for workloads that train: "
                f"{use('workload', 'resnet50')} or {use('workload', 'shapes')}. {request.workload} is always fp32."
            )
        return None
    settings: dict[str, object] = {
        **request.changes(),
        "global_batch": request.batch,
        "eval.every_epochs": 0.0,
        **({} if request.workload == "shapes" else {"data.source": "static"}),
    }
    if request.workload == EXACT:
        # A fingerprint after every part of a repeat tells when a device went wrong.
        settings |= {"machine.deterministic": True, "audit.every_steps": -(-request.iterations // _FINGERPRINTS)}
    return to_dict(recipes.change(recipes.load(_TRAINED[request.workload]), settings, ()).config)


def _describe_interruption(request: StudyRun, path: Path) -> str:
    """How many repeats are finished, and the command that resumes the study."""
    finished = len(StudyDir(path).repeats()) if StudyDir.is_study(path) else 0
    where = f" and saved in {path}" if finished else ""
    again = shlex.join([PROGRAM, *command_line(replace(request, out=str(path)))])
    return f"{plural(finished, 'repeat')} finished{where}; to resume: {again}"


# ------------------------------------------------------------------------------------------------------------ analyzing


class Study:
    """Whether devices are equal: which are slow, by how much, and whether it is the device or noise.

    `str` of it explains it in sentences; `analysis` has everything.
    """

    def __init__(self, analysis: StudyAnalysis, paths: Sequence[Path], options: "ColumnOptions", matter: float) -> None:
        self.analysis = analysis
        self._paths, self._options, self._matter = tuple(paths), options, matter

    @property
    def devices(self) -> tuple[DeviceVerdict, ...]:
        """One record per device, the slowest first: its median, how much slower it is, and the verdict."""
        return self.analysis.devices

    @property
    def slow(self) -> tuple[str, ...]:
        """The devices that should be removed: certainly slow, and by enough to matter."""
        return self.analysis.pull

    def table(self) -> list[dict[str, object]]:
        """The devices as people read them: one mapping of column to value each, the slowest first."""
        return study_rows(self.analysis, None)

    def to_pandas(self) -> "DataFrame":
        """`table()` as a table of pandas. Raises ConfigError without pandas."""
        return data_frame(self.table())

    def __str__(self) -> str:
        return "\n".join(map(PythonWords(StudyAnalyze).word, study_lines(self.analysis)))

    def __repr__(self) -> str:
        analysis = self.analysis
        slow = f"{len(self.slow)} to remove: {', '.join(self.slow[:3])}" if self.slow else "none to remove"
        more = ", ..." if len(self.slow) > 3 else ""
        return f"Study({analysis.devices_measured} devices, {analysis.runs:,} runs, {slow}{more})"

    def _repr_html_(self) -> str:
        from vernier.lab.page.studies import open_study

        return frame(repr(self), [open_study(self._paths, self._options, self._matter)], ("devices",))


def _column_options(request: StudyAnalyze | StudyBaseline | StudyCheck | StudyDesign) -> "ColumnOptions":
    return ColumnOptions(
        columns=parse_pairs(request.columns, "columns", FIELDS),
        units=parse_units(request.units),
    )


def _paths(sources: Sequence[str]) -> list[Path]:
    if not sources:
        raise ConfigError(f"{given('sources')} is empty. Name study directories, CSV files, logs, or folders of them.")
    return [Path(source) for source in sources]


def _read(request: StudyAnalyze | StudyBaseline | StudyCheck) -> "Table":
    """The table of all sources. Raises ConfigError if something is missing in them."""
    return read_table(_paths(request.sources), _column_options(request))


def analyze_study(request: StudyAnalyze, session: Session) -> Study:
    """Compare the devices of a study. Raises ConfigError if the sources cannot be read."""
    matter = fraction(request.matter)
    analysis = analyze(_read(request), matter)
    # Notes name options, which are called differently on the command line and in Python.
    paths = _paths(request.sources)
    votes = vote(ballot for path in paths if StudyDir.is_study(path) for ballot in StudyDir(path).ballots())
    analysis = replace(analysis, notes=tuple(map(session.word, analysis.notes)), corruption=votes or None)
    return Study(analysis, paths, _column_options(request), matter)


def learn_baseline(request: StudyBaseline, _: Session) -> Baseline:
    """Learn the baseline of a fleet and write it to its file. Raises ConfigError."""
    learned = learn(_read(request))
    write_baseline(Path(request.out), learned)
    return learned


def check_machine(request: StudyCheck, session: Session) -> CheckResult:
    """Judge the devices of a machine by a baseline. Raises ConfigError for another workload or a wrong unit."""
    control = read_table([Path(request.control)], _column_options(request)) if request.control else None
    result = check(read_baseline(Path(request.baseline)), _read(request), fraction(request.matter), control)
    return replace(result, notes=tuple(map(session.word, result.notes)))


@frozen
class MergedStudy:
    """The study that several were joined to: its directory, and how many devices and repeats it has."""

    path: Path
    devices: int
    repeats: int


def merge_studies(request: StudyMerge, _: Session) -> MergedStudy:
    """Join studies. Raises ConfigError if they are of different workloads."""
    merged = merge(_paths(request.sources), Path(request.out))
    return MergedStudy(path=merged.path, devices=len(merged.meta().devices), repeats=len(merged.repeats()))


def design_study(request: StudyDesign, _: Session) -> "DesignAnswer":
    """Predict what a study can find. Raises ConfigError for a pilot that is too small."""
    spread, noise = (
        (_SPREAD, _NOISE)
        if request.pilot is None
        else spreads_of(read_table([Path(request.pilot)], _column_options(request)))
    )
    settings = FleetSettings(
        devices=request.devices,
        repeats=request.repeats,
        per_host=request.per_host,
        spread=spread if request.spread is None else fraction(request.spread),
        noise=noise if request.noise is None else fraction(request.noise),
        disturbed=fraction(request.disturbed),
        seed=request.seed,
    )
    return answer(settings, fraction(request.find), repeat_s=parse_duration(request.repeat_time), fleets=request.fleets)


study_run = function(StudyRun, run_study, "study_run")
study_analyze = function(StudyAnalyze, analyze_study, "study_analyze")
study_baseline = function(StudyBaseline, learn_baseline, "study_baseline")
study_check = function(StudyCheck, check_machine, "study_check")
study_merge = function(StudyMerge, merge_studies, "study_merge")
study_design = function(StudyDesign, design_study, "study_design")


def study(sources: Any, **options: Any) -> Study:
    """The old name of `study_analyze`."""
    warnings.warn("study() is study_analyze() now; the old name stops working in 0.5.", FutureWarning, stacklevel=2)
    return study_analyze(sources, **options)
