"""Observers that hand a run on to trackers: TensorBoard where it is installed, W&B and MLflow where they are asked for.

Each is a thin sink: it starts, takes figures by tag, pictures, and ends. A tracker that fails after its start is let go
with a warning; it never ends a training.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from vernier.errors import ConfigError, RunFailed
from vernier.measure.machine.environment import installed_version
from vernier.report.live import tags
from vernier.report.live.tensorboard import EventFile
from vernier.store import RunDir

PROJECT = "vernier"
GRID = 4  # sample images a row


class Sink(Protocol):
    """What a tracker is asked."""

    def start(self, run: RunDir, start: dict[str, Any], settings: dict[str, str | float | bool]) -> None: ...

    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def image(self, step: int, tag: str, picture: Image.Image) -> None: ...

    def close(self, status: str) -> None:
        """`status` as in run.json."""
        ...


class TensorBoard:
    """Event files in the run directory: `tensorboard --logdir runs`."""

    def start(self, run: RunDir, start: dict[str, Any], settings: dict[str, str | float | bool]) -> None:
        self._file = EventFile(run.tensorboard())
        if start["resumed_from"] is not None:
            self._file.forget_from(start["resumed_from"] + 1)
        else:
            self._file.hyperparameters(settings, [f"val/{start['metric']}", "train/loss"], run.path.name)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._file.scalars(step, values)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._file.image(step, tag, picture)

    def close(self, status: str) -> None:
        self._file.close()


class WandB:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in the run directory until `wandb sync`."""

    def start(self, run: RunDir, start: dict[str, Any], settings: dict[str, str | float | bool]) -> None:
        import wandb

        self._images = wandb.Image
        self._run = wandb.init(
            project=PROJECT, name=run.path.name, id=run.path.name, dir=str(run.path), config=dict(settings),
            resume="allow" if start["resumed_from"] is not None else None,
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._run.log({tag: self._images(picture)}, step=step)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """A run of MLflow, where MLFLOW_TRACKING_URI says."""

    _ENDINGS = {"finished": "FINISHED", "stopped": "KILLED"}  # noqa: RUF012

    def start(self, run: RunDir, start: dict[str, Any], settings: dict[str, str | float | bool]) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment(PROJECT)
        mlflow.start_run(run_name=run.path.name, tags={"vernier.run": str(run.path)})
        mlflow.log_params(settings)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._mlflow.log_metrics(values, step=step)

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        self._mlflow.log_image(picture, artifact_file=f"{tag.replace('/', '-')}.png")

    def close(self, status: str) -> None:
        self._mlflow.end_run(status=self._ENDINGS.get(status, "FAILED"))


SINKS: dict[str, Callable[[], Sink]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
PACKAGES = {"tensorboard": ("tensorboard",), "wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}
HINTS = {
    "wandb": "Run `wandb login`, or set WANDB_MODE=offline.",
    "mlflow": "Set MLFLOW_TRACKING_URI to your server; for sqlite:///mlflow.db, pip install mlflow.",
}


class Tracker:
    """An engine observer that feeds one sink, and lets it go when it fails."""

    def __init__(self, name: str, warn: Callable[[str], None], *, wanted: bool) -> None:
        self._name, self._warn, self._wanted = name, warn, wanted
        self._sink: Sink | None = None
        self._status = "failed"

    def emit(self, event: dict[str, Any]) -> None:
        if event["kind"] == "start":
            self._start(event)
        elif event["kind"] == "end":
            self._status = event["status"]
        elif self._sink is not None and (values := tags.of_event(event)):
            self._tell(lambda sink: sink.scalars(event["step"], values))

    def progress(self, phase: str, done: int, total: int) -> None:
        pass

    def pictures(self, tag: str, images: npt.NDArray[np.uint8]) -> None:
        self._tell(lambda sink: sink.image(0, tag, grid(images)))

    def close(self) -> None:
        self._tell(lambda sink: sink.close(self._status))
        self._sink = None

    def _start(self, event: dict[str, Any]) -> None:
        sink, run = SINKS[self._name](), RunDir(Path(event["run"]))
        try:
            sink.start(run, event, tags.hyperparameters(run.read_config()))
        except Exception as error:  # whatever another library raises
            if self._wanted:
                raise RunFailed(
                    f"--track {self._name} could not start: {_in_short(error)} {HINTS[self._name]}"
                ) from None
            self._warn(f"{self._name} could not start and is left out: {_in_short(error)}")
            return
        self._sink = sink

    def _tell(self, what: Callable[[Sink], None]) -> None:
        if self._sink is None:
            return
        try:
            what(self._sink)
        except Exception as error:  # whatever another library raises
            self._warn(f"{self._name} failed and is let go, training goes on: {_in_short(error)}")
            self._sink = None


def _in_short(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}{'...' if len(words) > 300 else ''}"


def grid(images: npt.NDArray[np.uint8]) -> Image.Image:
    """Images [count, height, width, channels] side by side."""
    count, height, width, channels = images.shape
    rows = -(-count // GRID)
    sheet = np.zeros((rows * height, GRID * width, channels), dtype=np.uint8)
    for place, image in enumerate(images):
        top, left = place // GRID * height, place % GRID * width
        sheet[top : top + height, left : left + width] = image
    return Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)


def installed(name: str) -> bool:
    """Whether a tracker's package is here; a folder of that name, such as wandb makes, does not count."""
    return any(installed_version(package) for package in PACKAGES[name])


def require(asked: tuple[str, ...]) -> None:
    """ConfigError when a tracker is asked for that is not installed."""
    for name in asked:
        if not installed(name):
            raise ConfigError(f"--track {name} needs a package that is not installed: pip install 'vernier[{name}]'")


@contextmanager
def trackers(asked: tuple[str, ...], tensorboard: bool, warn: Callable[[str], None] | None) -> Iterator[list[Tracker]]:
    """The trackers of a run, closed at its end; `warn` is None in processes that report nothing."""
    if warn is None:
        yield []
        return
    names = (["tensorboard"] if tensorboard and installed("tensorboard") else []) + list(dict.fromkeys(asked))
    made = [Tracker(name, warn, wanted=name in asked) for name in names]
    try:
        yield made
    finally:
        for tracker in made:
            tracker.close()
