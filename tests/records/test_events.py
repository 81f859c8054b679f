"""Events of version 0.1, and the sessions of a run."""

import json
from pathlib import Path

import pytest

from vernier.records.codec import DamagedRecord
from vernier.records.events import StartEvent, StepEvent, decode_event, encode_event, sessions

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1"


def _step(step: int) -> StepEvent:
    return StepEvent(step=step, epoch=0.1, loss=1.0, lr=0.1, samples=8, step_s=(0.1,), wait_s=(0.0,))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/events.jsonl")), ids=lambda p: p.parent.name)
def test_events_of_version_0_1_are_read_and_written_alike(path: Path) -> None:
    for line in path.read_text().splitlines():
        tree = json.loads(line)
        event = decode_event(tree)
        assert event is not None
        written = encode_event(event)
        assert {k: written.get(k) for k in tree if k != "schema"} == {k: v for k, v in tree.items() if k != "schema"}


def test_a_session_begins_at_each_start_and_may_have_no_steps() -> None:
    one, two, three = _step(1), _step(2), _step(3)
    events = [StartEvent(), one, two, StartEvent(resumed_from=2), StartEvent(resumed_from=2), three]
    assert sessions(events) == [[one, two], [], [three]]
    assert sessions([]) == []


@pytest.mark.parametrize("times", [{"step_s": [-0.1]}, {"step_s": []}, {"step_s": [0.1, 0.1]}])
def test_impossible_times_are_damage(times: dict[str, list[float]]) -> None:
    with pytest.raises(DamagedRecord):
        decode_event({**encode_event(_step(1)), **times})
