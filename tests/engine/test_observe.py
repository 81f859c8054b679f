"""Observers of a run: events, pictures, the event file and the sensors."""

from pathlib import Path

import numpy as np
import pytest

from tests.tiny_training import events_of
from vernier.engine.observe import Observers, OwnObserver, Recorder, Telemetry
from vernier.lab.records.telemetry import TelemetryHeader, decode_telemetry
from vernier.own_code import refer_to
from vernier.records.events import EpochEvent, Event, StartEvent, WarningEvent
from vernier.store import RunDir


class Listener:
    """Remembers everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.phases: list[tuple[str, int, int]] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        self.phases.append((phase, done, total))


class PictureListener(Listener):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def pictures(self, tag: str, images: np.ndarray) -> None:
        self.tags.append(tag)


def test_every_observer_gets_every_event_in_order() -> None:
    listeners = Listener(), Listener()
    observers = Observers(listeners[0])
    observers.add(listeners[1])
    events: list[Event] = [StartEvent(), EpochEvent(step=1, epoch=1)]
    for event in events:
        observers.emit(event)
    observers.progress("evaluate", 1, 2)
    assert all(listener.events == events for listener in listeners)
    assert all(listener.phases == [("evaluate", 1, 2)] for listener in listeners)


def test_pictures_go_to_the_observers_that_keep_them() -> None:
    keepers = PictureListener(), PictureListener()
    Observers(Listener(), *keepers).pictures("train/images", np.zeros((1, 2, 2, 3), dtype=np.uint8))
    assert [keeper.tags for keeper in keepers] == [["train/images"]] * 2


def test_the_recorder_writes_events_that_are_read_back_typed(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    log = run.events()
    recorder = Recorder(log)
    recorder.emit(StartEvent(run="x", seed=3))
    recorder.progress("evaluate", 1, 2)
    recorder.emit(WarningEvent(step=1, message="careful"))
    log.close()
    start, warning = run.history()
    assert isinstance(start, StartEvent)
    assert (start.run, start.seed) == ("x", 3)
    assert isinstance(warning, WarningEvent)
    assert warning.message == "careful"
    assert warning.time is not None


def test_telemetry_counts_sessions_by_their_start_events(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for number in range(2):
        with Telemetry(run, "cpu", [], hz=50.0):
            pass
        log = run.events()
        log.emit(StartEvent(resumed_from=number or None))
        log.close()
    assert len(events_of(run, StartEvent)) == 2
    headers = [r for r in decode_telemetry(run.read_telemetry()) if isinstance(r, TelemetryHeader)]
    assert [header.session for header in headers] == [0, 1]


def test_without_a_sampling_rate_nothing_is_written(tmp_path: Path) -> None:
    with Telemetry(RunDir(tmp_path), "cpu", [], hz=0.0):
        pass
    assert not list(tmp_path.glob("telemetry*"))


def test_a_log_that_cannot_be_written_is_a_warning_to_all_and_lost_lines_are_told_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    log, listener = RunDir(tmp_path).events(), Listener()
    observers = Observers(listener, Recorder(log))
    observers.watch(log)
    observers.watch(None)
    observers.emit(EpochEvent(step=7, epoch=1))
    observers.emit(EpochEvent(step=8, epoch=2))
    observers.close_logs()
    warnings = [e for e in listener.events if isinstance(e, WarningEvent)]
    assert [e.step for e in warnings] == [7, 0]
    assert "could not be written: No space left on device" in warnings[0].message
    assert "lacks 3 lines" in warnings[1].message


def test_telemetry_on_a_full_disk_prints_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "telemetry.jsonl").symlink_to("/dev/full")
    with Telemetry(RunDir(tmp_path), "cpu", [], hz=50.0):
        pass
    assert capfd.readouterr().err == ""


def test_an_observer_of_a_user_that_raises_gets_no_more_events() -> None:
    seen: list[str] = []

    def own(event: Event) -> None:
        seen.append(event.kind)
        assert event.kind != "warning" or "bad" not in event.message, "no"  # type: ignore[union-attr]

    listener = Listener()
    observers = Observers(OwnObserver(refer_to(own)), listener)
    for message in ("good", "bad", "good"):
        observers.warn(1, message)
    assert len(seen) == 2
    messages = [event.message for event in listener.events if isinstance(event, WarningEvent)]
    assert messages[0:2] == ["good", "bad"]
    assert "AssertionError: no (test_observe.py, line" in messages[2]
    assert messages[3:] == ["good"]
