"""Observers that send a run to trackers: TensorBoard where it is installed, W&B and MLflow with --track.

Each sink is started by creating it, takes figures by tag and pictures, and is closed. A tracker that fails after its
start is dropped with a warning; it never ends a training.
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
from vernier.measure.environment import installed_version
from vernier.records.events import DivergenceEvent, EndEvent, EpochEvent, EvalEvent, Event, StartEvent, StepEvent
from vernier.records.run import EvaluationReport
from vernier.references import given
from vernier.store import RunDir

from . import tags
from .tensorboard import EventFile

PROJECT = "vernier"
GRID = 4  # sample images per row
SMOKE = "smoke"
"""The tag of smoke runs, whose figures mean nothing."""
Settings = dict[str, str | float | bool]


class Sink(Protocol):
    """What a tracker can do, once it has started."""

    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def image(self, step: int, tag: str, picture: Image.Image) -> None: ...

    def forget_from(self, step: int) -> None:
        """What was recorded from this step on is about to be repeated."""
        ...

    def close(self, status: str) -> None:
        """`status` as in run.json."""
        ...


class TensorBoard(EventFile):
    """Event files in the run directory: `tensorboard --logdir runs`."""

    def __init__(self, run: RunDir, start: StartEvent, settings: Settings) -> None:
        super().__init__(run.tensorboard())
        if start.resumed_from is not None:
            self.forget_from(start.resumed_from + 1)
        else:
            self.hyperparameters(settings, [f"val/{start.metric}", "train/loss"], run.path.name)


class WandB:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in the run directory until `wandb sync`."""

    def __init__(self, run: RunDir, start: StartEvent, settings: Settings) -> None:
        import wandb

        self._images = wandb.Image
        self._run = wandb.init(
            project=PROJECT,
            name=run.path.name,
            id=run.path.name,
            dir=str(run.path),
            config=dict(settings),
            tags=[SMOKE] if _is_smoke(start) else None,
            notes=start.ran.line() if start.ran else None,
            resume="allow" if start.resumed_from is not None else None,
            settings=wandb.Settings(console="off", silent=True),
        )

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._run.log({tag: self._images(picture)}, step=step)

    def forget_from(self, step: int) -> None:
        """W&B takes no second value for a step: those before the rollback stay until later steps."""

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
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

    def forget_from(self, step: int) -> None:
        """MLflow keeps both values of a step."""

    def close(self, status: str) -> None:
        self._mlflow.end_run(status=self._ENDINGS.get(status, "FAILED"))


SINKS: dict[str, Callable[[RunDir, StartEvent, Settings], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}
PACKAGES = {"tensorboard": ("tensorboard",), "wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}
HINTS = {
    "wandb": "Run `wandb login`, or set WANDB_MODE=offline.",
    "mlflow": "Set MLFLOW_TRACKING_URI to your server; for sqlite:///mlflow.db, pip install mlflow.",
}


class Tracker:
    """An observer that feeds one sink and drops it when it fails. One that is `required` must start."""

    def __init__(self, name: str, warn: Callable[[str], None], *, required: bool) -> None:
        self._name, self._warn, self._required = name, warn, required
        self._sink: Sink | None = None
        self._status = "failed"

    def emit(self, event: Event) -> None:
        match event:
            case StartEvent():
                self._start(event)
            case DivergenceEvent(resumed_from=int(step)):
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
            self._sink = SINKS[self._name](run, event, settings)
        except Exception as error:  # whatever another library raises
            if self._required:
                raise RunFailed(
                    f"{given('track', [self._name])} could not start: {_shorten(error)} {HINTS[self._name]}"
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
    """TensorBoard's event files for evaluations after the training, in RUN/tensorboard/eval: the x axis is the step.

    Evaluating again replaces what TensorBoard shows. A folder that cannot be written is a warning.
    """

    def __init__(self, run: RunDir, first_step: int, warn: Callable[[str], None]) -> None:
        self.folder, self._warn = run.tensorboard() / "eval", warn
        self._file: EventFile | None = None
        try:
            self._file = EventFile(self.folder)
            self._file.forget_from(first_step)
        except OSError as error:
            self._warn(f"TensorBoard's files cannot be written: {_shorten(error)}")

    def add(self, report: EvaluationReport) -> None:
        if self._file is not None and report.step is not None:
            self._file.scalars(report.step, tags.evaluation(report.figures, report.split))

    def close(self) -> Path | None:
        """The folder, where something was written."""
        if self._file is None:
            return None
        self._file.close()
        return self.folder


def _is_smoke(start: StartEvent) -> bool:
    return start.ran is not None and start.ran.smoke


def _shorten(error: Exception) -> str:
    words = " ".join(redact(str(error)).split())
    return f"{type(error).__name__}: {words[:300]}{'...' if len(words) > 300 else ''}"


def grid(images: npt.NDArray[np.uint8]) -> Image.Image:
    """Images [count, height, width, channels] side by side."""
    count, height, width, channels = images.shape
    rows = -(-count // GRID)
    sheet = np.zeros((rows * height, GRID * width, channels), dtype=np.uint8)
    for index, image in enumerate(images):
        top, left = index // GRID * height, index % GRID * width
        sheet[top : top + height, left : left + width] = image
    return Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)


def installed(name: str) -> bool:
    """Whether a tracker's package is installed; a folder of that name, such as wandb creates, does not count."""
    return any(installed_version(package) for package in PACKAGES[name])


def require_installed(names: tuple[str, ...]) -> None:
    """Raise ConfigError for a tracker that is not installed."""
    for name in names:
        if not installed(name):
            raise ConfigError(
                f"{given('track', [name])} needs a package that is not installed: pip install 'vernier[{name}]'"
            )


@contextmanager
def trackers(
    requested: tuple[str, ...], tensorboard: bool, warn: Callable[[str], None] | None
) -> Iterator[list[Tracker]]:
    """The trackers of a run, closed at its end; `warn` is None in processes that report nothing."""
    if warn is None:
        yield []
        return
    names = (["tensorboard"] if tensorboard and installed("tensorboard") else []) + list(dict.fromkeys(requested))
    active = [Tracker(name, warn, required=name in requested) for name in names]
    try:
        yield active
    finally:
        for tracker in active:
            tracker.close()
