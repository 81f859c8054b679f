"""A bounded part of `python -m tests.chaos.power_cuts`, and that it would see what it looks for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.tracing import missing

from .power_cuts import Recorder, Recording, check_moments, check_recording, first_run, recorder_in, run_from
from .trainings import working_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with working_folder() as work, recorder_in(work) as recorder:
        yield recorder


@pytest.fixture(scope="module")
def recording(recorder: Recorder) -> Recording:
    return first_run(recorder)


def test_every_state_after_a_power_cut_has_the_checkpoint_that_was_reported(
    recorder: Recorder, recording: Recording
) -> None:
    findings = check_recording(recording, recorder.folder.with_name("states"), seed=1, stride=45, samples=3, jobs=1)
    assert findings.problems == []
    assert len(findings.distinct) > 400
    assert findings.without_checkpoint > 0
    assert [problem for tree in findings.samples[:3] if (problem := run_from(recorder, recording, tree))] == []


@pytest.mark.parametrize("what", ["model.safetensors", "state.json", "manifest.json", "checkpoints", "out"])
def test_a_sync_that_is_left_out_is_noticed(recorder: Recorder, recording: Recording, what: str) -> None:
    def is_left_out(path: str) -> bool:
        name = Path(path).name
        return name == what or name.startswith(f".{what}.tmp-")

    records = tuple(r for r in recording.records if r.operation != "sync" or not is_left_out(r.path))
    assert len(records) < len(recording.records)
    careless = replace(recording, name=f"without-{what}", records=records)
    reports = [number for number, (_, reported) in enumerate(careless.moments()) if reported]
    findings = check_moments(careless, recorder.folder.with_name("careless"), 0, 0.0, reports[:1])
    assert findings.problems != []
