"""TensorBoard's event files, while a run trains and as a format that logs are converted to.

They are written by TensorBoard's own writer, whose queue and thread keep the disk out of the loop. Which figures go
under which tag is decided in `tags`.

torch.utils.tensorboard is not used: it takes seconds to import.
"""

import io
import threading
from pathlib import Path
from typing import Any

from PIL import Image

from vernier.clock import wall_s
from vernier.errors import ConfigError
from vernier.lab.logs.formats import LogFormat
from vernier.lab.logs.model import RunLog

from . import tags

_FLUSH_S = 5.0
_WRITER_MODULE = "tensorboard.summary.writer.event_file_writer"
_show_exception = threading.excepthook


def _show_exception_of_others(error: threading.ExceptHookArgs) -> None:
    """A writer that fails keeps its error for the next call, whose caller reports it: no traceback beside that."""
    if type(error.thread).__module__ != _WRITER_MODULE:
        _show_exception(error)


# For all threads, because the writer makes its own and takes no handler.
threading.excepthook = _show_exception_of_others


class EventFile:
    """One events.out.tfevents file in a folder. Raises ImportError without the tensorboard package."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(folder), max_queue_size=100, flush_secs=_FLUSH_S)

    def scalars(self, step: int, values: dict[str, float], at_s: float | None = None) -> None:
        """Figures by tag. `at_s` is in seconds since 1970; default: now."""
        parts = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._add(step, at_s, summary=self._summary.Summary(value=parts))

    def image(self, step: int, tag: str, picture: Image.Image) -> None:
        encoded = io.BytesIO()
        picture.save(encoded, format="PNG")
        image = self._summary.Summary.Image(
            height=picture.height,
            width=picture.width,
            colorspace=len(picture.getbands()),
            encoded_image_string=encoded.getvalue(),
        )
        value = self._summary.Summary.Value(tag=tag, image=image)
        self._add(step, summary=self._summary.Summary(value=[value]))

    def hyperparameters(self, values: dict[str, str | float | bool], metrics: list[str], trial: str) -> None:
        """For the HPARAMS tab: the settings of this run, and the tags by which runs are compared there."""
        from tensorboard.plugins.hparams import summary_v2

        columns = [summary_v2.HParam(name) for name in values]
        self._add(0, summary=summary_v2.hparams_config_pb(columns, [summary_v2.Metric(tag) for tag in metrics]))
        self._add(0, summary=summary_v2.hparams_pb(values, trial_id=trial))

    def forget_from(self, step: int) -> None:
        """Make readers drop what an interrupted session wrote from `step` on; those steps are repeated."""
        # TensorBoard's own event for a restart: readers drop the steps from this one on.
        self._add(step, session_log=self._event.SessionLog(status=self._event.SessionLog.START))

    def close(self, status: str = "finished") -> None:
        """TensorBoard's files have no field for the status."""
        self._writer.close()

    def _add(self, step: int, at_s: float | None = None, **content: Any) -> None:
        when = wall_s() if at_s is None else at_s
        self._writer.add_event(self._event.Event(step=step, wall_time=when, **content))


# ----------------------------------------------------------------------------------------------------------------- logs


def _tensorboard(run: RunLog, out: Path) -> list[Path]:
    """TensorBoard's event files, with the tags of live logging; the x axis is the optimiser step."""
    try:
        file = EventFile(out)
    except ImportError:
        raise ConfigError("TensorBoard's files need its package: pip install 'vernier[tensorboard]'.") from None
    start, elapsed = run.began().timestamp(), 0.0
    evals = {e.epoch: e for e in run.evals}
    last = {s.epoch: s for s in run.steps}
    # Steps are counted on: logs of other systems begin again at every epoch, and the x axis must not.
    number = 0
    for step in run.steps:
        elapsed += step.seconds
        number += step.steps
        data_wait_s, samples = step.wait_s / step.steps, step.samples / step.steps
        values = tags.training(step.seconds / step.steps, samples, loss=step.loss, lr=step.lr, data_wait_s=data_wait_s)
        if step is last[step.epoch] and step.epoch in evals:
            values |= tags.evaluation(evals[step.epoch].values)
        file.scalars(number, values, start + elapsed)
    file.close()
    return sorted(out.glob("events.out.tfevents.*"))


FORMAT = LogFormat(write_folder=_tensorboard)
