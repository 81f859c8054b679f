"""Without a plug-in nothing is checked, and training is the same."""

from pathlib import Path

import pytest

from tests.tiny_training import events_of, run_training, tiny_config
from vernier import plugins
from vernier.config import override
from vernier.engine.training import guard
from vernier.records.events import FingerprintEvent


def test_training_works_without_a_guard(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(tiny_config(shapes), "limits.max_steps", 3)
    guarded = run_training(config, tmp_path / "guarded")
    monkeypatch.setattr(guard, "only_plugin", lambda group: None)
    plain = run_training(config, tmp_path / "plain")
    assert events_of(guarded.run, FingerprintEvent)
    assert not events_of(plain.run, FingerprintEvent)
    assert plain.summary.result == guarded.summary.result


def test_the_laboratory_offers_one() -> None:
    assert plugins.only_plugin("vernier.guards").__name__ == "AuditGuard"
