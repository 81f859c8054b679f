import json
from pathlib import Path

import pytest

from vernier.records.events import Event, StartEvent, StepEvent
from vernier.store.events import EventLog


def _step(step: int, loss: float) -> StepEvent:
    return StepEvent(step=step, epoch=0.1, loss=loss, lr=0.1, samples=8, step_s=(0.5,), wait_s=(0.0,))


def _write(path: Path, *events: Event) -> None:
    log = EventLog(path)
    for event in events:
        log.emit(event)
    log.close()


def test_events_survive_a_torn_line_and_a_resume_counts_steps_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _write(path, StartEvent(), *(_step(step, float(step)) for step in (1, 2, 3)))
    with path.open("a") as f:
        f.write('{"kind": "step", "st')
    _write(path, StartEvent(resumed_from=2), _step(3, 30.0))
    events, damaged = EventLog.read_history(path)
    assert [(e.step, e.loss) for e in events if isinstance(e, StepEvent)] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert damaged == 1
    assert all(
        {"schema", "time"} <= set(json.loads(line)) for line in path.read_text().splitlines() if line.endswith("}")
    )


def test_damaged_events_are_counted_and_events_of_a_newer_version_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _write(path, StartEvent(), _step(1, 1.0))
    with path.open("a") as f:
        f.write('{"kind": "step", "step": "two"}\n{"kind": "invented", "step": 2}\n[1, 2]\n\xff\xfe\n')
    events, damaged = EventLog.read_history(path)
    assert [type(e) for e in events] == [StartEvent, StepEvent]
    assert damaged == 2


def test_a_log_that_does_not_exist_has_no_events(tmp_path: Path) -> None:
    assert EventLog.read_history(tmp_path / "events.jsonl") == ([], 0)


def test_a_log_that_cannot_be_written_raises_nothing_and_warns_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.symlink_to("/dev/full")
    log = EventLog(path)
    log.emit(_step(1, 1.0))
    assert "No space left on device" in (log.pop_warning() or "")
    log.emit(_step(2, 1.0))
    assert log.pop_warning() is None
    assert log.close() == f"{path} lacks 2 lines: No space left on device."


def test_a_history_with_a_gap_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _write(path, _step(3, 3.0), _step(4, 4.0), StartEvent(resumed_from=4), _step(9, 9.0))
    events, damaged = EventLog.read_history(path)
    assert [e.step for e in events if isinstance(e, StepEvent)] == [3, 4, 9]
    assert damaged == 0


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this system has no /proc")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/proc/self/mem")  # can be opened, and not be read
    with pytest.raises(OSError, match=r"events\.jsonl"):
        EventLog.read_history(tmp_path / "events.jsonl")


def test_the_ends_of_a_long_file_are_read_without_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _write(path, StartEvent(seed=7), *(_step(step, float(step)) for step in range(1, 2001)))
    ends = EventLog.read_ends(path, tail=True)
    assert isinstance(ends[0], StartEvent)
    assert ends[0].seed == 7
    steps = [event.step for event in ends if isinstance(event, StepEvent)]
    assert steps == list(range(steps[0], 2001))
    assert 1 < steps[0] < 2000
    assert [type(event) for event in EventLog.read_ends(path, tail=False)] == [StartEvent]
    assert EventLog.read_ends(tmp_path / "nothing.jsonl", tail=True) == []


def test_the_ends_of_a_short_and_of_a_damaged_file_have_every_event_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _write(path, StartEvent(), _step(1, 1.0))
    assert len(EventLog.read_ends(path, tail=True)) == 2
    with path.open("a") as f:
        f.write('not JSON\n{"kind": "step"')
    assert len(EventLog.read_ends(path, tail=True)) == 2


@pytest.mark.parametrize("block", [7, 100, 1 << 18])
def test_the_newest_event_of_a_kind_is_found_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Whatever part of the file is read at a time, behind torn and damaged lines."""
    monkeypatch.setattr("vernier.store.events._BLOCK_BYTES", block)
    path = tmp_path / "events.jsonl"
    assert EventLog.read_newest(path, StepEvent) is None
    path.touch()
    assert EventLog.read_newest(path, StepEvent) is None
    _write(path, StartEvent(recipe="first"), *(_step(step, float(step)) for step in (1, 2, 3)))
    with path.open("a") as f:
        f.write('{"kind": "step", "step": "no number"}\n\n\xff{"kind": "step", "st')
    newest = EventLog.read_newest(path, StepEvent)
    assert newest is not None
    assert newest.step == 3
    _write(path, StartEvent(recipe="second"))
    recipes = [e.recipe for oldest in (True, False) if (e := EventLog.read_newest(path, StartEvent, oldest=oldest))]
    assert recipes == ["first", "second"]
