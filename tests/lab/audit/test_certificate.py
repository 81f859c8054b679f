"""A certificate agrees with its run until a byte of it changes, and a signature with its file and key alone."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.config import override
from vernier.errors import ConfigError
from vernier.lab.audit.certificate import (
    PREDICATE,
    STATEMENT,
    certificate,
    check_signature,
    problems,
    read_certificate,
    sign,
)
from vernier.records.codec import encode
from vernier.store import RunDir, write_json


@pytest.fixture(scope="module")
def finished(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    config = tiny_config(shapes)
    for name, value in {"limits.max_steps": 4, "checkpoint.every_steps": 2, "audit.every_steps": 2}.items():
        config = override(config, name, value)
    return run_training(config, tmp_path_factory.mktemp("certified")).run


@pytest.fixture
def run(finished: RunDir, tmp_path: Path) -> RunDir:
    """A copy that a test may change."""
    return RunDir.open(Path(shutil.copytree(finished.path, tmp_path / "run")))


def test_it_has_everything_that_identifies_a_run(run: RunDir) -> None:
    statement = certificate(run, ["vernier verify FILE"])
    assert {"config.json", "events.jsonl", "checkpoints/step-00000004/model.safetensors"} <= {
        subject.name for subject in statement.subject
    }
    predicate = statement.predicate
    assert [link.split(":")[0] for link in predicate.chain] == ["2", "4"]
    assert predicate.environment["versions"]["torch"]
    assert predicate.data is not None
    assert predicate.summary.result is not None
    low, high = predicate.intervals["top1"]
    assert 0 <= low <= (predicate.summary.result.figures["top1"] or 0) <= high <= 100
    file = run.path / "certificate.json"
    write_json(file, encode(statement))
    written = json.loads(file.read_text())
    assert (written["_type"], written["predicateType"]) == (STATEMENT, PREDICATE)
    assert problems(read_certificate(file), run) == []


@pytest.mark.parametrize("name", ["config.json", "checkpoints/step-00000004/model.safetensors"])
def test_a_changed_byte_is_named(run: RunDir, name: str) -> None:
    statement = certificate(run, [])
    content = (run.path / name).read_bytes()
    (run.path / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    (problem,) = problems(statement, run)
    assert problem.startswith(name)


def test_a_forged_fingerprint_breaks_the_chain(run: RunDir) -> None:
    statement = certificate(run, [])
    path = run.path / "events.jsonl"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"kind": "fingerprint"' in line or '"kind":"fingerprint"' in line)
    event = json.loads(lines[at])
    lines[at] = json.dumps({**event, "weights": "0" * 16})
    path.write_text("\n".join(lines) + "\n")
    assert [problem.split(":")[0] for problem in problems(statement, run)] == ["events.jsonl", "fingerprints"]


def test_only_a_finished_run_is_certified(run: RunDir) -> None:
    run.write_status("stopped")
    with pytest.raises(ConfigError, match="finished"):
        certificate(run, [])


@pytest.mark.parametrize("content", ["{}", "no JSON", '{"_type": "https://in-toto.io/Statement/v1"}'])
def test_another_file_is_no_certificate(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(ConfigError, match="file"):
        read_certificate(tmp_path / "file")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signature_is_that_of_one_file_and_one_key(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    file = tmp_path / "certificate.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="not signed"):
        check_signature(file, tmp_path / "mine.pub")
    sign(file, tmp_path / "mine")
    check_signature(file, tmp_path / "mine.pub")
    with pytest.raises(ConfigError):
        check_signature(file, tmp_path / "other.pub")
    file.write_text("{ }")
    with pytest.raises(ConfigError):
        check_signature(file, tmp_path / "mine.pub")
    with pytest.raises(ConfigError, match="key"):
        sign(file, tmp_path / "missing")
