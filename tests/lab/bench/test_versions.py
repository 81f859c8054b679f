"""Other versions of Vernier: checked out from this repository, and given only the settings they have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO
from vernier import recipes
from vernier.config import Config, to_dict
from vernier.errors import ConfigError
from vernier.lab.bench import versions
from vernier.lab.bench.versions import checked_out, fit_config

needs_git = pytest.mark.skipif(not (REPO / ".git").exists(), reason="this is no git clone")


@pytest.mark.slow
@needs_git
def test_another_version_is_checked_out_beside_this_one_and_gone_afterwards() -> None:
    with checked_out("HEAD") as other:
        assert (other.source / "vernier" / "__init__.py").is_file()
        assert len(other.commit) == 40
        assert other.settings["machine"]["precision"] == "fp32"
    assert not other.source.exists()
    with pytest.raises(ConfigError, match="neither a run directory nor a git reference"), checked_out("no-such-thing"):
        pass


@pytest.mark.parametrize("module", ["engine/bench.py", "engine/measured/arm.py", "lab/measured/arm.py"])
def test_settings_are_read_from_the_old_and_the_new_layout_of_packages(tmp_path: Path, module: str) -> None:
    package = tmp_path / "vernier"
    for path in (Path("__init__.py"), *(parent / "__init__.py" for parent in Path(module).parents), Path(module)):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text("")
    (package / "config.py").write_text("def Config(): return 7\ndef to_dict(config): return {'seven': config}\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", versions._PRINT_SETTINGS],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seven": 7}


def test_a_version_gets_only_the_settings_it_has() -> None:
    own = to_dict(Config())
    settings = json.loads(json.dumps(own))
    del settings["machine"]["allow_slow"], settings["recipe"]["optim"]["lr"]
    config, left_out = fit_config(own, settings, "v1")
    assert left_out == ["recipe.optim.lr", "machine.allow_slow"]
    assert config == settings
    own["machine"]["allow_slow"] = True
    with pytest.raises(ConfigError, match=r"v1: that version has no setting machine.allow_slow, which is True here"):
        fit_config(own, settings, "v1")


def test_a_renamed_setting_goes_to_an_older_version_by_its_old_name() -> None:
    own = to_dict(Config())
    own["recipe"]["model"]["batch_norm_images"] = 8
    settings = json.loads(json.dumps(own))
    settings["recipe"]["model"]["bn_span"] = settings["recipe"]["model"].pop("batch_norm_images")
    config, left_out = fit_config(own, settings, "v1")
    assert config["recipe"]["model"]["bn_span"] == 8
    assert left_out == []


def test_settings_of_an_optimizer_go_to_a_version_that_prints_those_of_its_default() -> None:
    own = to_dict(Config(recipe=recipes.get("shapes-muon")))
    config, left_out = fit_config(own, to_dict(Config()), "v1")
    assert config["recipe"]["optim"] == own["recipe"]["optim"]
    assert left_out == []
