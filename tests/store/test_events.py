import json
from pathlib import Path

from vernier.records.events import Event, StartEvent, StepEvent
from vernier.store.events import EventLog, read_history


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
    events, damaged = read_history(path)
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
    events, damaged = read_history(path)
    assert [type(e) for e in events] == [StartEvent, StepEvent]
    assert damaged == 2


def test_a_log_that_does_not_exist_has_no_events(tmp_path: Path) -> None:
    assert read_history(tmp_path / "events.jsonl") == ([], 0)
