"""External logs as subjects of the page: what other systems wrote, in any format that plugs in (`lab.logs`)."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from markupsafe import Markup

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs
from vernier.lab.logs.work import work_of
from vernier.lab.statistics.runs import time_to_train
from vernier.records.events import StartEvent
from vernier.records.run import EvalResult, RunSummary
from vernier.report.page.html import chip, tag
from vernier.report.page.identity import NOT_IN_LOG, PARTS, Parts
from vernier.report.page.numbers import when
from vernier.report.page.subjects import Facts, Kind, Subject
from vernier.report.page.training import EvalPoint, Point, Training, thin
from vernier.store import RunDir, find_runs
from vernier.wording import plural

SUFFIXES = ("", ".txt", ".log", ".out", ".json", ".jsonl")  # the first one is for files without a suffix
_MOST_FILES = 500
"""A folder with more files than these is not searched for logs of other systems."""
# Of formats that plug in; those of outside packages are shown by their own name.
_FOREIGN = {
    "raport": "NVIDIA's raport.json",
    "dllogger": "NVIDIA's DLLogger lines",
    "mllog": "an MLPerf log",
}


def parts_of_log(log: RunLog) -> Parts:
    """What ran in another system's log; what it does not say is `NOT_IN_LOG`."""
    texts = work_of(log).texts
    texts = texts | {"batch": texts.get("batch") or texts.get("global batch", "")}
    # `work_of` words an unknown number as a sentence, which would count as a known part here.
    if log.devices is None:
        texts.pop("devices", None)
    # Parts from `mode` on are stated by Vernier's own records alone; they are not called missing in external logs.
    parts = {part: texts.get(part) or NOT_IN_LOG for part in PARTS[: PARTS.index("mode")]}
    return parts | ({"device": texts["device"]} if texts.get("device") else {})


@frozen
class Log(Training):
    """Another system's log."""

    foreign: bool = True
    status: str = "foreign"

    def chips(self) -> list[Markup]:
        return [chip(self.label), chip(f"foreign: {_FOREIGN.get(self.format, self.format)}", self.status)]

    def facts(self) -> Facts:
        return [("log", tag("code", self.path)), ("started", when(self.started)), (NOT_IN_LOG, self._missing())]

    def what_ran(self) -> str:
        line = " · ".join(text for text in self.parts.values() if text not in ("", NOT_IN_LOG))
        return f"{line}; {NOT_IN_LOG}: {missing}" if (missing := self._missing()) else line

    def _missing(self) -> str:
        return ", ".join(name for name, text in self.parts.items() if text == NOT_IN_LOG)


def times_to_train(subjects: Sequence[Subject]) -> list[str]:
    """MLPerf's score of the logs of one folder and network, in words; aborted runs are counted apart."""
    groups: dict[tuple[str, Path], list[Log]] = {}
    for subject in subjects:
        if isinstance(subject, Log) and subject.format == "mllog":
            # An MLPerf submission has one folder per system and benchmark, with one file per run.
            groups.setdefault((subject.parts.get("network", NOT_IN_LOG), subject.path.parent), []).append(subject)
    lines = []
    for (network, folder), group in groups.items():
        finished = [s for s in group if s.summary.reached_target and "total" in s.spent_s]
        left = len(group) - len(finished)
        aborted = f"; {plural(left, 'aborted run')} left out" if left else ""
        score, how = time_to_train([s.spent_s["total"] for s in finished], left) or (
            None,
            "several runs did not reach the target" if finished else "no run reached the target",
        )
        minutes = "time to train" if score is None else f"time to train {score / 60:,.2f} minutes"
        lines.append(f"{network} in {folder}: {minutes} ({how}{aborted})")
    return lines


def _read(path: Path, _: bool) -> list[Subject]:
    if path.is_file():
        return [_subject(log) for log in open_logs(path)]
    if not (logs := _logs_below(path)):
        RunDir.open(path)  # raises: the error about the run directory is the better message
    return [_subject(log) for log in logs]


def _logs_below(folder: Path) -> list[RunLog]:
    """Other systems' logs in a folder that is no run; files that are no logs are passed over."""
    files = [file for file in islice(folder.rglob("*"), _MOST_FILES + 1) if file.is_file()]
    logs: list[RunLog] = []
    for file in sorted(files) if len(files) <= _MOST_FILES else ():
        if file.suffix in SUFFIXES:
            with suppress(ConfigError):
                logs += open_logs(file)
    return logs


def _subject(log: RunLog) -> Log:
    """The log, whose steps become points. MLPerf's logs have whole epochs, counted from one."""
    parts = parts_of_log(log)
    points, evals = _curves(log, parts["network"])
    return Log(
        name=log.path.stem,
        path=log.path,
        format=log.format,
        settings=log.settings,
        environment=log.environment,
        points=thin(points),
        evals=tuple(evals),
        notes=log.notes,
        start=StartEvent(
            world=log.devices or 0,  # 0: not in the log
            train_samples=log.train_samples or 0,
            val_samples=log.eval_samples or 0,
            time=log.started,
        ),
        parts=parts,
        summary=RunSummary(reached_target=log.reached_target),
        spent_s={"total": log.total_s} if log.total_s else {},
    )


def _curves(log: RunLog, network: str) -> tuple[list[Point], list[EvalPoint]]:
    """The curves of another system's log. Where it has only some steps of an epoch, they stand for the others' time."""
    # A record of an MLPerf log is a whole epoch, and epochs count from 1.
    by_epoch = log.format == "mllog"
    # Some logs count steps from 0, others from 1; one that counts from 0 has a step 0, also if it prints every n-th.
    offset = int(min((s.step for s in log.steps), default=0) == 0)
    last_step, recorded = Counter[int](), Counter[int]()
    for s in log.steps:
        last_step[s.epoch] = max(last_step[s.epoch], s.step + offset)
        recorded[s.epoch] += s.steps
    # Steps in earlier epochs: external logs start counting again in each epoch, the page counts through.
    before = {epoch: sum(n for e, n in last_step.items() if e < epoch) for epoch in last_step}
    points: list[Point] = []
    time_s, ends = 0.0, dict[int, float]()
    for s in log.steps:
        # A log that prints every n-th step: each printed one stands for n steps of its epoch.
        share = 1.0 if by_epoch else max(1.0, last_step[s.epoch] / recorded[s.epoch])
        time_s += share * s.seconds
        ends[s.epoch] = time_s
        points.append(
            Point(
                epoch=s.epoch + (0.0 if by_epoch else (s.step + offset) / last_step[s.epoch]),
                step=None if by_epoch else before[s.epoch] + s.step + offset,
                time_s=time_s,
                loss=s.loss,
                lr=s.lr,
                steps=s.steps,
                window=s.window,
                steady=s.steady,
            )
        )
    evals = [
        EvalPoint(
            epoch=e.epoch + (not by_epoch),  # an evaluation is at the end of its epoch
            step=None if by_epoch or e.epoch not in before else before[e.epoch] + last_step[e.epoch],
            time_s=ends.get(e.epoch, time_s),
            result=EvalResult(samples=e.samples or log.eval_samples or 0, figures=_figures(e.values, network)),
        )
        for e in log.evals
    ]
    return points, evals


def _figures(values: dict[str, float], network: str) -> dict[str, float | None]:
    """Figures under Vernier's names: MLPerf's accuracy is top-1 of ResNet-50 and COCO's AP of SSD, both from 0 to 1."""
    figures: dict[str, float | None] = {**values}
    if network in ("resnet50", "ssd") and (accuracy := figures.pop("eval_accuracy", None)) is not None:
        figures |= {"top1": 100 * accuracy} if network == "resnet50" else {"AP": accuracy}
    return figures


# Any file, and any folder that holds no runs: what cannot be read is described by the error.
KIND = Kind(
    recognizes=lambda path, _: path.is_file() or not find_runs(path), read=_read, order=90, scores=times_to_train
)
