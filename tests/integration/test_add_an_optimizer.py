"""An optimizer is one file: the one of docs/add-an-optimizer.md, installed as a package, through the command line."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.conftest import Done, only_run
from tests.documented import DOCS
from vernier.config import Optim

PAGE = (DOCS / "add-an-optimizer.md").read_text(encoding="utf-8")
LION = ["--set", "optim.name=lion", "--lr", "0.001"]


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The variables with which Python finds the package of the page, as pip leaves it in a folder."""
    files = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, flags=re.S))
    project = tomllib.loads(files["pyproject.toml"])["project"]
    site = tmp_path / "site"
    metadata = site / "vernier_lion-0.1.dist-info"
    metadata.mkdir(parents=True)
    (site / "vernier_lion.py").write_text(files["vernier_lion.py"])
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1\n")
    entries = project["entry-points"]["vernier.optimizers"]
    lines = ["[vernier.optimizers]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {"PYTHONPATH": str(site)}


@pytest.mark.slow
def test_an_optimizer_of_another_package_trains_resumes_and_is_recorded(
    vernier: Callable[..., Done], tiny: list[str], tmp_path: Path, installed: dict[str, str]
) -> None:
    def train(out: str, *words: str) -> Path:
        done = vernier("train", *words, "--out", out, env=installed)
        assert done.code == 0, done.err
        return only_run(tmp_path / out)

    def weights(run: Path) -> bytes:
        return (sorted((run / "checkpoints").glob("step-*"))[-1] / "model.safetensors").read_bytes()

    own = [*tiny, *LION, "--set", "optim.beta2=0.95", "--set", "optim.nesterov=false"]
    whole = train("whole", *own, "--max-steps", "4")
    assert json.loads((whole / "config.json").read_text())["recipe"]["optim"]["beta2"] == 0.95
    state = load_file(sorted((whole / "checkpoints").glob("step-*"))[-1] / "optimizer.safetensors")
    assert {name.rpartition("/")[2] for name in state} == {"momentum_buffer"}
    run = train("cut", *own, "--max-steps", "2")
    assert weights(run) != weights(train("other", *own[:-4], "--set", "optim.nesterov=false", "--max-steps", "2"))
    assert weights(run) == weights(train("again", str(run / "config.json")))
    done = vernier("train", "--resume", str(run), "--max-steps", "4", env=installed)
    assert done.code == 0, done.err
    assert weights(run) == weights(whole)

    evaluated = vernier("eval", str(run), "--json")  # without the package
    assert evaluated.code == 0, evaluated.err
    refused = vernier("train", str(run / "config.json"))
    assert refused.code == 2
    assert "optim.name = lion is not one of: adamw, lamb, lars, muon, sgd" in refused.err


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("optim.beta2=1.5", "0.9999 or less"),
        ("optim.beta2=half", "must be a number"),
        ("optim.beta2=0.5", "forgets faster"),  # its own check
        ("optim.beta3=0.5", "Unknown setting 'optim.beta3'. Did you mean optim.beta2"),
        ("optim.bias_lr=1", "is for muon"),
    ],
)
def test_a_wrong_setting_of_it_is_refused(
    vernier: Callable[..., Done], installed: dict[str, str], setting: str, why: str
) -> None:
    words = [*LION, "--set", "optim.nesterov=false", "--set", setting]
    done = vernier("train", "--explain", *words, env=installed)
    assert done.code == 2
    assert why in done.err
    assert setting.partition("=")[0] in done.err


def test_it_is_explained_and_predicted(vernier: Callable[..., Done], installed: dict[str, str]) -> None:
    done = vernier("train", "--explain", *LION, "--set", "optim.nesterov=false", env=installed)
    assert done.code == 0, done.err
    assert "memory" in done.out


def test_the_contract_of_an_optimizer_is_documented_in_full() -> None:
    documented = set(re.findall(r"`(\w+)(?:\([^`)]*\))?`", PAGE))
    assert {name for name in dir(Optim) if not name.startswith("_")} - {"name"} <= documented
