"""TensorBoard's event files, read back by TensorBoard, live and from logs."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.lab.logs.conftest import TIMES, run, windows
from vernier.compat.trackers.tensorboard import EventFile
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.writing import convert

pytest.importorskip("tensorboard", reason="needs vernier[tensorboard]")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    return events


def test_figures_and_pictures_are_read_back(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.scalars(3, {"train/loss": 1.5, "val/top1": 50.0}, at_s=1000.0)
    file.image(0, "train/images", Image.new("RGB", (6, 4)))
    file.hyperparameters({"recipe.optim.lr": 0.1}, ["val/top1"], "trial")
    file.close()
    events = read(tmp_path)
    assert [(s.step, s.value, s.wall_time) for s in events.Scalars("train/loss")] == [(3, 1.5, 1000.0)]
    assert [s.value for s in events.Scalars("val/top1")] == [50.0]
    (picture,) = events.Images("train/images")
    assert (picture.width, picture.height) == (6, 4)
    assert b"recipe.optim.lr" in events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content


def test_steps_that_are_repeated_after_a_resume_count_once(tmp_path: Path) -> None:
    for first, loss in ((1, 1.0), (3, 2.0)):
        file = EventFile(tmp_path)
        if first > 1:
            file.forget_from(first)
        for step in range(first, 5):
            file.scalars(step, {"train/loss": loss})
        file.close()
        if first == 1:  # files of one second and process are read in no order; those of two sessions have two times
            (earlier,) = tmp_path.iterdir()
            earlier.rename(earlier.with_name("events.out.tfevents.0000000001.host.1.0"))
    assert [(s.step, s.value) for s in read(tmp_path).Scalars("train/loss")] == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_file_that_cannot_be_written_prints_no_traceback(tmp_path: Path, when: str) -> None:
    script = """
import resource, shutil, sys
from pathlib import Path
from vernier.compat.trackers.tensorboard import EventFile
if sys.argv[2] == "at once":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    file = EventFile(Path(sys.argv[1]))
    shutil.rmtree(sys.argv[1])
    while True:
        file.scalars(1, {"loss": 1.0})
except OSError:
    print("reported")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "logs"), when], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "reported\n"
    assert done.stderr == ""


__all__ = ["run", "windows"]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_gets_the_mean_of_each_window_at_its_last_step(windows: RunLog, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    convert(windows, "tensorboard", tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    times = events.Scalars("train/step_s")
    assert [e.step for e in times] == list(range(10, 301, 10))
    assert [e.value for e in times] == pytest.approx([sum(TIMES[i : i + 10]) / 10 for i in range(0, 300, 10)], rel=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_the_files(run: RunLog, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    convert(run, "tensorboard", tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    times = events.Scalars("train/step_s")
    assert [e.value for e in times] == pytest.approx([s.seconds for s in run.steps], rel=1e-6)
    assert [e.step for e in times] == list(range(1, 301))
    assert [(e.step, e.value) for e in events.Scalars("val/top1")] == [(100, 51.0), (200, 52.0), (300, 53.0)]


def test_without_tensorboard_the_extra_is_named(run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ConfigError, match=r"pip install 'vernier\[tensorboard\]'"):
        convert(run, "tensorboard", tmp_path / "tb")
