"""`vernier.train`: the training of the command, from Python."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import vernier as v
from tests.api.conftest import TINY
from vernier.api import starting, training
from vernier.api.session import Session
from vernier.api.training import _check_weights, _refuse_unclear_batch
from vernier.cli.wording import ShellWords
from vernier.config import Changed, Config, override
from vernier.engine.processes import launch
from vernier.engine.processes.launch import LocalRun
from vernier.records.events import StepEvent
from vernier.report.live.console import ConsoleObserver
from vernier.requests.training import Train
from vernier.requests.wording import Words


def test_a_training_returns_its_run_and_changes_nothing_of_the_session(tiny_run: v.Run) -> None:
    assert tiny_run.status == "finished"
    assert tiny_run.summary.step == 12
    assert tiny_run.config.recipe.model.width == 8
    assert "VERNIER_STARTED_S" not in os.environ


def test_it_is_the_training_of_the_command(tiny_run: v.Run, tiny: list[str], vernier_here: Any) -> None:
    """The same settings give the same weights to the last bit, so the same figures."""
    done = vernier_here("train", *tiny, "--epochs", "1.2", "--no-tensorboard", "--json")
    assert done.code == 0, done.err
    assert done.json()["result"]["loss"] == tiny_run.result.loss


@pytest.mark.parametrize(
    ("recipe", "options", "given"),
    [
        (None, {"epochs": "ten"}, {"epochs": None}),
        (None, {"lr": -1}, {"optim.lr": -1.0}),
        (None, {"precision": "bf17"}, {"precision": "bf17"}),
        (None, {"weights": "/no/such.pth"}, {"model.weights": "/no/such.pth"}),
        (None, {"freeze": "lyaer1"}, {"model.freeze": "lyaer1"}),
        ("shapes-quick", {"config": "x.json"}, {"config": "x.json"}),
        (None, {"config": "x.json"}, {"config": "x.json"}),
        (None, {"profile_steps": "5:3"}, {"profile_steps": "5:3"}),
        (3, {}, {"recipe": None}),
        (None, {"data": 3}, {"data": None}),
    ],
)
def test_what_cannot_be_trained_is_refused_with_what_was_given(
    recipe: Any, options: dict[str, Any], given: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(v.ConfigError) as caught:
        v.train(recipe, out=tmp_path / "runs", **options)
    assert caught.value.given == given
    assert "--" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("shapes-quik", {}, "shapes-quick"),
        (None, {"epoch": 3}, "Did you mean epochs"),
        (None, {"learning_rate": 3}, "called lr here"),
        (None, {"settings": {"optim.lrr": 1}}, r"Did you mean optim\.lr\?"),
        (None, {"data": "/no/such/folder"}, "/no/such/folder"),
        (None, {"procs": 3}, "global_batch=33"),
        (None, {"weights": "/no/such.pth"}, 'weights="/no/such.pth"'),
        (None, {"freeze": "lyaer1"}, "layer1"),
        (None, {"resume": "/no/such/run"}, "/no/such/run"),
        (None, {"resume": __file__}, "recipe"),
    ],
)
def test_what_cannot_be_trained_is_explained_in_the_words_of_python(
    recipe: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(v.ConfigError, match=message):
        v.train(recipe, out=tmp_path / "runs", **options)
    assert list(tmp_path.iterdir()) == []


def test_explain_returns_what_a_run_would_do(shapes: Path, tmp_path: Path) -> None:
    explained = training.explain(data=shapes, out=tmp_path / "runs", workers=0, train_only=True, **TINY)
    assert (explained.train_images, explained.derived.process_batch) == (160, 16)
    assert list(tmp_path.iterdir()) == []


class _At:
    """Calls a function at the first event of a kind, as if a person had pressed a key then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, action: Any) -> None:
        emit = ConsoleObserver.emit

        def watch(console: ConsoleObserver, event: Any) -> None:
            emit(console, event)
            if isinstance(event, kind):
                monkeypatch.undo()
                action()

        monkeypatch.setattr(ConsoleObserver, "emit", watch)


def test_ctrl_c_saves_and_the_same_call_resumes(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_run: v.Run
) -> None:
    options = {**TINY, "data": shapes, "out": tmp_path, "epochs": 1.2, "tensorboard": False}
    before = signal.getsignal(signal.SIGINT)
    _At(monkeypatch, StepEvent, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(v.Interrupted, match=r"saved in .*\. The same call resumes it\.") as caught:
        v.train(**options)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value._render_traceback_() == [str(caught.value)]
    assert signal.getsignal(signal.SIGINT) is before
    assert caught.value.path is not None
    stopped = v.open_run(caught.value.path)
    assert (stopped.status, 0 < (stopped.summary.step or 0) < 12) == ("stopped", True)
    resumed = v.train(**options)
    assert (resumed, resumed.status) == (stopped, "finished")
    assert resumed.events("start")[-1].resumed_from == stopped.events("checkpoint")[0].step
    assert resumed.result.loss == tiny_run.result.loss, "as if nothing had happened"


def test_ctrl_c_before_the_first_step_leaves_nothing_behind(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "joined", lambda config, quiet: signal.raise_signal(signal.SIGINT))
    with pytest.raises(v.Interrupted, match="before its first step") as caught:
        v.train(data=shapes, out=tmp_path / "runs", **TINY)
    assert caught.value.path is None
    assert not (tmp_path / "runs").exists()


def test_a_scheduler_stops_a_script_with_the_exit_code_of_the_command(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _At(monkeypatch, StepEvent, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as caught:
        v.train(data=shapes, out=tmp_path, **TINY)
    assert caught.value.code == 75
    assert v.open_run(tmp_path).status == "stopped"


def test_a_time_limit_counts_from_the_call_and_returns_the_run(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session may have been open for days; there is time for one step here, whatever the machine does."""
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 0.0)
    with launch.time_counted_from_now():
        assert (launch.time_left_s("1h") or 0) > 3500
    run = v.train(data=shapes, out=tmp_path, max_time="1s", epochs=500, train_only=True, **TINY)
    assert run.status == "stopped"
    assert 1 <= (run.summary.step or 0) < 5000


def test_it_runs_in_any_thread(shapes: Path, tmp_path: Path) -> None:
    runs: list[v.Run] = []
    options = {**TINY, "data": shapes, "out": tmp_path, "max_steps": 1, "train_only": True}
    thread = threading.Thread(target=lambda: runs.append(v.train(**options)))
    thread.start()
    thread.join()
    assert [run.status for run in runs] == ["finished"]


def test_logs_of_nvidia_are_written_and_values_of_many_kinds_are_taken(shapes: Path, tmp_path: Path) -> None:
    import numpy as np

    run = v.train(
        data=shapes,
        out=str(tmp_path / "runs"),
        max_steps=np.int64(2),
        train_only=True,
        freeze="layer1",
        max_bad_images=3,
        checkpoints=False,
        dllogger=tmp_path / "log.json",
        device="cpu",
        **TINY,
    )
    assert (tmp_path / "log.json").stat().st_size > 0
    assert (run.config.recipe.model.freeze, run.config.recipe.data.max_bad_images) == (("layer1",), "3")
    assert list((run.path / "checkpoints").iterdir()) == []


def test_an_old_name_of_a_setting_is_an_error_with_the_new_name(tmp_path: Path) -> None:
    with pytest.raises(v.ConfigError, match=r"It is called optim\.trust_coefficient\."):
        v.train(data="/no/such", out=tmp_path, settings={"optim.trust": 1})


@pytest.mark.slow
def test_several_processes_train_and_return_their_run(shapes: Path, tmp_path: Path) -> None:
    run = v.train(data=shapes, out=tmp_path, procs=2, max_steps=2, tensorboard=False, **TINY)
    assert (run.status, run.config.machine.procs, run.result.samples) == ("finished", 2, 50)
    assert len(run.events("start")[0].processes) == 2


@pytest.mark.parametrize(
    ("ended", "error", "message"),
    [
        (LocalRun(code=2, reason="There is no data."), v.ConfigError, r"^There is no data\.$"),
        (LocalRun(code=1, reason="It diverged."), v.RunFailed, r"^It diverged\.$"),
        (LocalRun(code=1), v.RunFailed, "2 processes ended with exit code 1; the reason is printed above"),
        (LocalRun(code=75, stopped_by="SIGINT"), v.Interrupted, "before its first step"),
        (LocalRun(code=75, stopped_by="SIGTERM"), SystemExit, "75"),
    ],
)
def test_the_end_of_processes_is_that_of_a_training_in_this_one(
    ended: LocalRun,
    error: type[BaseException],
    message: str,
    shapes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "run_in_processes", lambda *_: ended)
    with pytest.raises(error, match=message):
        v.train(data=shapes, out=tmp_path, procs=2, **TINY)


def _check(config: Config, tmp_path: Path) -> None:
    start = training.Training(changed=Changed(config=config), warnings=(), out=tmp_path / "runs")
    start.check(Session(Words(None), quiet=True))


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("machine.procs", 3, "global_batch"),
        ("model.weights", "/no/such.pth", "model.weights = /no/such.pth"),
        ("model.backbone_weights", "/tmp", "model.backbone_weights = /tmp"),
        ("model.freeze", ["lyaer1"], "layer1"),
        ("data.max_bad_images", "many", "many"),
        ("data.source", "/no/such", "/no/such"),
    ],
)
def test_what_needs_no_torch_is_refused_before_anything_starts(
    setting: str, value: object, named: str, tmp_path: Path
) -> None:
    config = override(override(Config(), "data.source", "shapes"), setting, value)
    with pytest.raises(v.ConfigError, match=named):
        _check(config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_can_start_is_left_alone(tmp_path: Path) -> None:
    config = override(override(Config(), "data.source", "shapes"), "global_batch", 8)
    _check(config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_published_weights_of_a_new_run_are_fetched_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(starting, "fetch_pretrained", lambda name, progress: fetched.append(name))
    config = override(override(Config(), "data.source", "shapes"), "model.weights", "torchvision:resnet50-v2")
    _check(override(config, "global_batch", 8), tmp_path)
    assert fetched == ["torchvision:resnet50-v2"]


def test_weights_are_a_file_a_checkpoint_of_tensorflow_or_published(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-7.index").touch()
    for value in (__file__, str(tmp_path / "model.ckpt-7"), str(tmp_path), "torchvision:resnet50-v2"):
        _check_weights("weights", value)
    with pytest.raises(v.ConfigError) as caught:
        _check_weights("weights", str(tmp_path / "missing.pth"))
    assert caught.value.given == {"weights": str(tmp_path / "missing.pth")}


def test_a_batch_that_could_mean_two_things_is_refused() -> None:
    request = Train(global_batch=8)
    typed = Session(ShellWords(Train, request, {"global_batch": "--batch-size"}))
    with pytest.raises(v.ConfigError) as caught:
        _refuse_unclear_batch(2, typed)
    assert list(caught.value.given) == ["global_batch"]
    assert ("machine.process_batch", "N") in caught.value.works
    _refuse_unclear_batch(1, typed)
    _refuse_unclear_batch(2, Session(ShellWords(Train, request)))
