"""Audits and certificates from Python."""

import shutil
from pathlib import Path

import pytest

import vernier as v
from tests.tiny_training import run_training, tiny_config
from vernier.config import override
from vernier.errors import ConfigError


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(shapes)
    for name, value in {"limits.max_steps": 4, "checkpoint.every_steps": 2, "audit.every_steps": 2}.items():
        config = override(config, name, value)
    return run_training(config, tmp_path_factory.mktemp("audited")).run.path


def test_an_audit_is_a_record(run: Path) -> None:
    result = v.audit(run, sample=1, quiet=True)
    assert (result.verdict, len(result.intervals), result.of_intervals, result.missed) == ("agrees", 1, 2, 0.5)


def test_a_run_that_moved_is_verified_where_it_is(run: Path, tmp_path: Path) -> None:
    file = v.certify(run, out=tmp_path / "certificate.json")
    moved = shutil.copytree(run, tmp_path / "moved")
    assert v.verify(file, run=moved).verdict == "agrees"
    (moved / "config.json").write_text("{}")
    changed = v.verify(file, run=moved, depth="full")
    assert changed.verdict == "differs"
    assert changed.audit is None  # other settings are not worth a replay


def test_a_certificate_that_cannot_be_written_is_an_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="out"):
        v.certify(run, out=tmp_path / "missing" / "file" / "certificate.json")
