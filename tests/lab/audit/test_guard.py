"""What the guard does with a difference follows from audit.on_corruption; what it promises is in the notes of a run."""

from pathlib import Path

import pytest

from tests.chaos.corruption import Fault, Injection
from tests.tiny_training import events_of, run_training, tiny_config
from vernier.config import Config, override
from vernier.data.augment.normalize import Normalizer
from vernier.engine.training import loop
from vernier.engine.training.divergence import Diverged
from vernier.engine.training.step import TrainStep
from vernier.lab.audit.replay import Audit
from vernier.records.events import DivergenceEvent, FingerprintEvent, StartEvent, WarningEvent
from vernier.store import find_runs


def _config(shapes: Path, policy: str) -> Config:
    config = tiny_config(shapes)
    settings = {
        "limits.max_steps": 6,
        "checkpoint.every_steps": 2,
        "eval.every_epochs": 0,
        "machine.reduction": "exact",
        "audit.every_steps": 1,
        "audit.spot_check": 1.0,
        "audit.on_corruption": policy,
    }
    for name, value in settings.items():
        config = override(config, name, value)
    return config


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Injection:
    """Nothing at first; undone after the test."""
    for owner, name in ((TrainStep, "__call__"), (TrainStep, "_update"), (TrainStep, "_loss"), (loop, "tensor_files")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(Normalizer, "__call__", Normalizer.__call__)
    return Injection(None).install()


def test_a_run_that_goes_back_has_the_weights_of_a_clean_one(shapes: Path, tmp_path: Path, fault: Injection) -> None:
    clean = run_training(_config(shapes, "rollback"), tmp_path / "clean").run
    # Before the first checkpoint, too: the run saves one at the start.
    fault.arm(Fault(place="convolution", step=1, tensor=1, micro=1))
    run = run_training(_config(shapes, "rollback"), tmp_path / "wrong").run
    assert fault.flips == 1
    (event,) = events_of(run, DivergenceEvent)
    assert (event.step, event.resumed_from, event.lr_factor) == (1, 0, 1.0)
    assert events_of(run, FingerprintEvent)[-1].weights == events_of(clean, FingerprintEvent)[-1].weights
    fault.arm(None)
    audit = Audit(run, None)
    assert audit.replay(audit.intervals, lambda done, total: None).verdict == "agrees"  # what it gave up is forgotten
    audit.close()


def test_what_happens_again_ends_the_run_and_never_lowers_the_rate(
    shapes: Path, tmp_path: Path, fault: Injection
) -> None:
    fault.arm(Fault(place="batch", step=3, rate=0.5))
    config = override(_config(shapes, "rollback"), "limits.on_divergence", "rollback")
    with pytest.raises(Diverged) as caught:
        run_training(config, tmp_path)
    assert "Test the device" in caught.value.message
    (run,) = find_runs(tmp_path)
    assert {event.lr_factor for event in events_of(run, DivergenceEvent)} <= {1.0, None}


def test_a_run_stops_or_warns(shapes: Path, tmp_path: Path, fault: Injection) -> None:
    fault.arm(Fault(place="gradient", step=3, tensor=1))
    with pytest.raises(Diverged) as caught:
        run_training(_config(shapes, "stop"), tmp_path / "stop")
    assert caught.value.event.step == 3
    assert "no earlier checkpoint" not in caught.value.message
    fault.arm(Fault(place="gradient", step=3, tensor=1))
    run = run_training(_config(shapes, "warn"), tmp_path / "warn").run
    assert [event.step for event in events_of(run, DivergenceEvent)] == [3]
    assert any("Training continues" in event.message for event in events_of(run, WarningEvent))


def test_what_is_copied_wrong_is_not_saved(shapes: Path, tmp_path: Path, fault: Injection) -> None:
    wrong = Fault(place="checkpoint", step=4, tensor=3, element=7)
    fault.arm(wrong)
    with pytest.raises(Diverged) as caught:
        run_training(_config(shapes, "stop"), tmp_path / "stop")
    event = caught.value.event
    assert (event.step, event.ranks) == (4, (0,))
    assert event.quantity.startswith("fingerprint of weights (")
    (stopped,) = find_runs(tmp_path / "stop")
    assert [each.step for each in stopped.checkpoints.committed()] == [2]
    fault.arm(wrong)
    run = run_training(_config(shapes, "rollback"), tmp_path / "rollback").run
    assert [(each.step, each.resumed_from) for each in events_of(run, DivergenceEvent)] == [(4, 2)]
    fault.arm(wrong)
    warned = run_training(_config(shapes, "warn"), tmp_path / "warn").run
    assert any("copied weights" in event.message for event in events_of(warned, WarningEvent))
    assert warned.checkpoints.committed()[-1].step == 6


def test_the_probability_to_find_a_device_is_printed(shapes: Path, tmp_path: Path) -> None:
    run = run_training(override(_config(shapes, "stop"), "audit.spot_check", 0.01), tmp_path).run
    (start,) = events_of(run, StartEvent)
    assert any("is found within 1,000 steps with" in note for note in start.notes)
