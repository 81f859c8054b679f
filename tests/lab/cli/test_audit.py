"""`vernier audit`, `certify` and `verify` from the command line: results, exit codes, and wrong input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_training import run_training, tiny_config
from vernier.config import override


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(shapes)
    for name, value in {
        "limits.max_steps": 6,
        "checkpoint.every_steps": 2,
        "checkpoint.keep_last": 9,
        "audit.every_steps": 2,
    }.items():
        config = override(config, name, value)
    return run_training(config, tmp_path_factory.mktemp("audited")).run.path


@pytest.mark.slow
def test_a_run_is_audited_certified_and_verified(vernier: Callable[..., Any], run: Path) -> None:
    audited = vernier("audit", str(run), "--sample", "2")
    assert audited.code == 0
    assert "agrees" in audited.out
    assert "2 of 3 intervals" in audited.out
    certified = vernier("certify", str(run), "--json")
    file = json.loads(certified.out)["certificate"]
    verified = vernier("verify", file, "--depth", "full", "--json")
    result = json.loads(verified.out)
    assert (verified.code, result["verdict"], len(result["audit"]["intervals"])) == (0, "agrees", 3)
    path = run / "config.json"
    path.write_text(path.read_text() + "\n")
    changed = vernier("verify", file)
    assert changed.code == 1
    assert "config.json" in changed.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["audit", "nowhere"], "nowhere"),
        (["audit", "nowhere", "--sample", "0"], "--sample"),
        (["certify", "nowhere"], "nowhere"),
        (["verify", "nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_input_is_one_sentence(vernier: Callable[..., Any], words: list[str], part: str) -> None:
    done = vernier(*words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err
