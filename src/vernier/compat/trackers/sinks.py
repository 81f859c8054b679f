"""Observers that send a run to trackers: TensorBoard if it is installed, others by name (`vernier.tracking`).

A package offers a tracker as an entry point of the group `vernier.trackers` that names a `TrackerKind`. Its sink is
started by creating it, takes metrics by tag and pictures, and is closed. A tracker that fails after its start is
dropped with a warning; it never ends a run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from vernier.addresses import redact
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.measure.environment import installed_version
from vernier.plugins import describe_failures, load_group
from vernier.records.events import DivergenceEvent, EndEvent, EpochEvent, EvalEvent, Event, StartEvent, StepEvent
from vernier.records.run import EvaluationReport
from vernier.references import given
from vernier.store import RunDir

from . import tags
from .tensorboard import EventFile

PROJECT = "vernier"
_GRID = 4  # sample images per row
SMOKE = "smoke"
"""The tag of smoke runs, whose figures mean nothing."""
Settings = dict[str, str | float | bool]


class Sink(Protocol):
    """What a tracker can do, once it has started."""

    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def image(self, step: int, tag: str, picture: Image.Image) -> None: ...

    def forget_from(self, step: int) -> None:
        """What was recorded from this step on is about to be repeated. By default it stays until it is."""

    def close(self, status: str) -> None:
        """`status` as in run.json."""
        ...


@frozen
class TrackerKind:
    """A tracker: its sink, the packages of which one must be installed, and what helps if it cannot start."""

    sink: Callable[[RunDir, StartEvent, Settings], Sink]
    packages: tuple[str, ...] = ()
    hint: str = ""

    def is_installed(self) -> bool:
        """By its package; a folder of that name, such as wandb creates, does not count."""
        return not self.packages or any(map(installed_version, self.packages))


def kinds() -> dict[str, TrackerKind]:
    """Every tracker by name."""
    return load_group("vernier.trackers", TrackerKind)


class TensorBoard(EventFile):
    """Event files in the run directory: `tensorboard --logdir runs`."""

    def __init__(self, run: RunDir, start: StartEvent, settings: Settings) -> None:
        super().__init__(run.tensorboard())
        if start.resumed_from is not None:
            self.forget_from(start.resumed_from + 1)
        else:
            self.hyperparameters(settings, [f"val/{start.metric}", "train/loss"], run.path.name)


class WandB(Sink):
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in the run directory until `wandb sync`."""

    def __init__(self, run: RunDir, start: StartEvent, settings: Settings) -> None:
        import wandb

        self._images = wandb.Image
        self._run = wandb.init(
            project=PROJECT,
            name=run.path.name,
            # The name as id: the same run is continued after an interruption.
            id=run.path.name,
            dir=str(run.path),
            config=dict(settings),
            tags=[SMOKE] if start.ran and start.ran.smoke else None,
            notes=start.ran.line() if start.ran else None,
            resume="allow" if start.resumed_from is not None else None,
            # Its own capture of the console would replace the terminal's streams.
            settings=wandb.Settings(console="off", silent=True),
        )

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._run.log({tag: self._images(picture)}, step=step)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow(Sink):
    """A run of MLflow, where MLFLOW_TRACKING_URI says."""

    _ENDINGS = {"finished": "FINISHED", "stopped": "KILLED"}  # noqa: RUF012

    def __init__(self, run: RunDir, start: StartEvent, settings: Settings) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment(PROJECT)
        labels = {f"vernier.{name}": text for name, text in tags.what_ran(start).items()}
        mlflow.start_run(run_name=run.path.name, tags={"vernier.run": str(run.path), **labels})
        mlflow.log_params(settings)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._mlflow.log_metrics(values, step=step)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._mlflow.log_image(picture, artifact_file=f"{tag.replace('/', '-')}.png")

    def close(self, status: str) -> None:
        self._mlflow.end_run(status=self._ENDINGS.get(status, "FAILED"))


TENSORBOARD = TrackerKind(sink=TensorBoard, packages=("tensorboard",))
WANDB = TrackerKind(sink=WandB, packages=("wandb",), hint="Run `wandb login`, or set WANDB_MODE=offline.")
MLFLOW = TrackerKind(
    sink=MLflow,
    packages=("mlflow", "mlflow-skinny"),
    hint="Set MLFLOW_TRACKING_URI to your server; for sqlite:///mlflow.db, pip install mlflow.",
)


class Tracker:
    """An observer that feeds one sink and drops it when it fails. One that is `required` must start."""

    def __init__(self, name: str, warn: Callable[[str], None], *, required: bool) -> None:
        self._name, self._warn, self._required = name, warn, required
        self._sink: Sink | None = None
        # Until the run says otherwise: a crash sends no last event.
        self._status = "failed"

    def emit(self, event: Event) -> None:
        match event:
            case StartEvent():
                self._start(event)
            case DivergenceEvent(resumed_from=int(step)):
                # The checkpoint's own step stays; those after it are repeated.
                self._call(lambda sink: sink.forget_from(step + 1))
            case EndEvent():
                self._status = event.status
            case StepEvent() | EpochEvent() | EvalEvent():
                step, figures = event.step, tags.of_event(event)
                if figures:
                    self._call(lambda sink: sink.scalars(step, figures))

    def progress(self, phase: str, done: int, total: int) -> None:
        pass

    def pictures(self, tag: str, images: npt.NDArray[np.uint8]) -> None:
        self._call(lambda sink: sink.image(0, tag, grid(images)))

    def close(self) -> None:
        self._call(lambda sink: sink.close(self._status))
        self._sink = None

    def _start(self, event: StartEvent) -> None:
        run = RunDir(Path(event.run))
        try:
            settings: Settings = {**tags.hyperparameters(run.read_config()), **tags.what_ran(event)}
            self._sink = kinds()[self._name].sink(run, event, settings)
        except Exception as error:  # whatever another library raises
            # Requested by name; TensorBoard is also used just because it is installed.
            if self._required:
                raise RunFailed(
                    f"{given('track', [self._name])} could not start: {_shorten(error)} {kinds()[self._name].hint}"
                ) from None
            self._warn(f"{self._name} could not start and is not used: {_shorten(error)}")

    def _call(self, action: Callable[[Sink], None]) -> None:
        if self._sink is None:
            return
        try:
            action(self._sink)
        except Exception as error:  # whatever another library raises
            self._warn(f"{self._name} failed and is no longer used; training continues: {_shorten(error)}")
            self._sink = None


class EvaluationBoard:
    """TensorBoard's event files for evaluations after the training, in a folder: the x axis is the step.

    Evaluating again replaces what TensorBoard shows. Raises OSError for a folder that cannot be written.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        self._folder, self._file = folder, EventFile(folder)
        self._file.forget_from(first_step)

    def add(self, report: EvaluationReport) -> None:
        if report.step is not None:
            self._file.scalars(report.step, tags.evaluation(report.figures, report.split))

    def close(self) -> Path:
        """The folder."""
        self._file.close()
        return self._folder


def _shorten(error: Exception) -> str:
    words = " ".join(redact(str(error)).split())
    return f"{type(error).__name__}: {words[:300]}{'...' if len(words) > 300 else ''}"


def grid(images: npt.NDArray[np.uint8]) -> Image.Image:
    """Images [count, height, width, channels] side by side."""
    count, height, width, channels = images.shape
    rows = -(-count // _GRID)
    sheet = np.zeros((rows * height, _GRID * width, channels), dtype=np.uint8)
    for index, image in enumerate(images):
        top, left = index // _GRID * height, index % _GRID * width
        sheet[top : top + height, left : left + width] = image
    return Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)


def check(names: tuple[str, ...]) -> None:
    """Raise ConfigError for a tracker that does not exist or is not installed."""
    for name in names:
        if (kind := kinds().get(name)) is None:
            raise ConfigError(
                f"{given('track', [name])} is not known. Choose from {', '.join(sorted(kinds()))}."
                f"{describe_failures('vernier.trackers')}"
            )
        if not kind.is_installed():
            raise ConfigError(
                f"{given('track', [name])} needs a package that is not installed: pip install 'vernier[{name}]'"
            )


@contextmanager
def attach(requested: tuple[str, ...], tensorboard: bool, warn: Callable[[str], None]) -> Iterator[list[Tracker]]:
    """The trackers of a run, closed at its end."""
    # First, so that a name that is requested, too, is started once.
    automatic = ["tensorboard"] if tensorboard and TENSORBOARD.is_installed() else []
    active = [Tracker(name, warn, required=name in requested) for name in dict.fromkeys([*automatic, *requested])]
    try:
        yield active
    finally:
        for tracker in active:
            tracker.close()


def open_board(run: RunDir, first_step: int, warn: Callable[[str], None]) -> EvaluationBoard | None:
    """TensorBoard's files for evaluations, in RUN/tensorboard/eval; None if the package is not installed, and with a
    warning if they cannot be written."""
    if not TENSORBOARD.is_installed():
        return None
    try:
        return EvaluationBoard(run.tensorboard() / "eval", first_step)
    except OSError as error:
        warn(f"TensorBoard's files cannot be written: {_shorten(error)}")
        return None
