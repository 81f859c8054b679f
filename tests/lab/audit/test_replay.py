"""An audit agrees with clean runs and names what a fault changed; it refuses what it cannot compute again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.corruption import PLACES, Fault, Injection
from tests.tiny_training import run_training, tiny_config
from vernier.config import Config, override
from vernier.data.augment.normalize import Normalizer
from vernier.engine.training import loop
from vernier.engine.training.step import TrainStep
from vernier.errors import ConfigError
from vernier.lab.audit.records import AuditResult
from vernier.lab.audit.replay import Audit
from vernier.measure.profiles import StepRange
from vernier.store import RunDir


def _config(shapes: Path, **changes: object) -> Config:
    settings = {
        "limits.max_steps": 8,
        "checkpoint.every_steps": 3,
        "checkpoint.every_epochs": 0,
        "checkpoint.keep_last": 10,
        "eval.every_epochs": 0,
        "audit.every_steps": 1,
        **changes,
    }
    config = tiny_config(shapes)
    for name, value in settings.items():
        config = override(config, name, value)
    return config


def _train(config: Config, out: Path, fault: Fault | None = None) -> RunDir:
    """A run in this process, with the fault if there is one."""
    names = ("__call__", "_update", "_loss")
    before = {name: getattr(TrainStep, name) for name in names}, Normalizer.__call__, loop.tensor_files
    injection = Injection(fault).install() if fault else None
    try:
        run = run_training(config, out).run
    finally:
        for name, function in before[0].items():
            setattr(TrainStep, name, function)
        Normalizer.__call__, loop.tensor_files = before[1], before[2]  # type: ignore[method-assign]
    assert injection is None or injection.flips == 1
    return run


def _audit(run: RunDir, sample: int | None = None, procs: int = 1) -> AuditResult:
    audit = Audit(run, None)
    try:
        return audit.replay(audit.choose(sample), lambda done, total: None, procs)
    finally:
        audit.close()


@pytest.mark.parametrize("reduction", ["ddp", "exact"])
def test_a_clean_run_agrees(reduction: str, shapes: Path, tmp_path: Path) -> None:
    result = _audit(_train(_config(shapes, **{"machine.reduction": reduction}), tmp_path))
    assert result.verdict == "agrees"
    assert [(each.start, each.stop) for each in result.intervals] == [(0, 3), (3, 6), (6, 8)]
    assert sum(each.compared for each in result.intervals) == 8
    assert result.missed == 0


@pytest.mark.parametrize("place", [place for place in PLACES if place != "checkpoint"])
def test_a_flipped_bit_is_found_at_its_step(place: str, shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes), tmp_path, Fault(place=place, step=5, tensor=3, element=7))
    result = _audit(run)
    assert result.verdict == "differs"
    before, wrong, after = result.intervals
    assert before.difference is None
    assert after.difference is None  # it began with what the run saved
    assert wrong.difference is not None
    assert (wrong.difference.after, wrong.difference.step) == (4, 5)
    assert [process.rank for process in wrong.difference.suspects] == [0]


def test_a_bit_that_flips_while_saving_is_the_checkpoints_alone(shapes: Path, tmp_path: Path) -> None:
    # Training notices it, too, and saves it only if it has to.
    config = _config(shapes, **{"audit.on_corruption": "warn"})
    result = _audit(_train(config, tmp_path, Fault(place="checkpoint", step=6, tensor=3, element=7)))
    assert (result.verdict, result.damaged) == ("differs", (6,))
    assert [(each.start, each.stop, each.difference) for each in result.intervals] == [(0, 3, None), (3, 8, None)]


def test_a_damaged_file_is_reported_and_not_read(shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes), tmp_path)
    file = run.checkpoints.committed()[0].path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    result = _audit(run)
    assert (result.verdict, result.damaged) == ("differs", (3,))
    assert [(each.start, each.stop, each.difference) for each in result.intervals] == [(0, 6, None), (6, 8, None)]


@pytest.mark.slow
def test_several_processes_replay_intervals_at_the_same_time(shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes), tmp_path, Fault(place="weight", step=5))
    alone, together = _audit(run), _audit(run, procs=2)
    without = [replace(each, intervals=[replace(i, seconds=0.0) for i in each.intervals]) for each in (alone, together)]
    assert without[0] == without[1]


def test_with_exact_reduction_shard_and_process_are_named(shapes: Path, tmp_path: Path) -> None:
    config = _config(shapes, **{"machine.reduction": "exact"})
    run = _train(config, tmp_path, Fault(place="convolution", step=5, micro=2, tensor=1))
    (found,) = [each.difference for each in _audit(run).intervals if each.difference]
    assert found.step == 5
    assert found.shards == (2,)
    assert [process.rank for process in found.suspects] == [0]
    assert found.tensors


def test_rare_fingerprints_tell_the_interval(shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes, **{"audit.every_steps": 4}), tmp_path, Fault(place="weight", step=2))
    result = _audit(run)
    first = result.intervals[0].difference
    assert first is not None
    assert (first.after, first.step) == (0, 3)


def test_a_shard_that_is_wrong_in_a_rare_fingerprint_tells_the_step(shapes: Path, tmp_path: Path) -> None:
    config = _config(shapes, **{"machine.reduction": "exact", "audit.every_steps": 4, "checkpoint.every_steps": 8})
    run = _train(config, tmp_path, Fault(place="convolution", step=4, micro=2, tensor=1))
    (found,) = [each.difference for each in _audit(run).intervals]
    assert found is not None
    assert (found.after, found.step, found.shards) == (3, 4, (2,))


def test_the_losses_between_rare_fingerprints_tell_more(shapes: Path, tmp_path: Path) -> None:
    often = {"audit.every_steps": 8, "checkpoint.every_steps": 8, "limits.log_every_steps": 1}
    run = _train(_config(shapes, **often), tmp_path, Fault(place="weight", step=4, bit=29))
    (found,) = [each.difference for each in _audit(run).intervals]
    assert found is not None
    assert (found.after, found.step) == (0, 4)


def test_a_sample_states_what_it_may_miss(shapes: Path, tmp_path: Path) -> None:
    result = _audit(_train(_config(shapes), tmp_path), sample=1)
    assert len(result.intervals) == 1
    assert result.missed == pytest.approx(2 / 3)


def test_the_intervals_of_chosen_steps_are_replayed(shapes: Path, tmp_path: Path) -> None:
    audit = Audit(_train(_config(shapes), tmp_path), None)
    assert [each.start for each in audit.containing(StepRange(4, 6))] == [3]
    assert [each.start for each in audit.containing(StepRange(3, 4))] == [0, 3]
    with pytest.raises(ConfigError) as refused:
        audit.containing(StepRange(9, 9))
    assert refused.value.given == {"steps": "9:9"}
    # Once more: the fingerprint of step 6 is taken again, although the last one that was taken is of that step.
    results = [audit.replay(audit.containing(StepRange(4, 6)), lambda done, total: None) for _ in range(2)]
    assert [result.verdict for result in results] == ["agrees", "agrees"]
    audit.close()


def test_a_difference_elsewhere_is_no_proof(shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes), tmp_path, Fault(place="weight", step=5))
    path = run.path / "environment.json"
    environment = json.loads(path.read_text())
    environment["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(environment))
    result = _audit(run)
    assert result.verdict == "cannot tell"
    assert "PyTorch was 1.0" in result.doubts[0]


def test_a_run_without_fingerprints_is_refused(shapes: Path, tmp_path: Path) -> None:
    run = _train(_config(shapes, **{"audit.every_steps": 0}), tmp_path)
    with pytest.raises(ConfigError) as caught:
        _audit(run)
    assert caught.value.works == {"audit.every_steps": 0} or "no fingerprints" in caught.value.message
