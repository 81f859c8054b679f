"""Recipes as rows of a TOML file."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.recipes.files import read_recipes

FILE = """
heading = "Ours"
[systems.here]
device = "CPU"
devices = 1

[[recipes]]
name = "base"
schedule.epochs = 7.0
published = [{ mean = 1.0 }]

[[recipes]]
name = "changed"
base = "base"
optim.lr = 0.3
published = [{ system = "here", mean = 71.5 }]
notes = "What it is for."

[[recipes]]
name = "again"
base = "changed"
optim.name = "adamw"
notes = "Without a result."
"""


def test_a_row_changes_its_base_and_has_its_own_results(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(FILE)
    (changed, again) = read_recipes(str(tmp_path / "ours.py"))["Ours"]
    first, second = changed(), again()
    assert (first.name, first.schedule.epochs, first.optim.lr, changed.__doc__) == (
        "changed",
        7.0,
        0.3,
        "What it is for.",
    )
    assert [(p.mean, p.device, p.devices) for p in first.published] == [(71.5, "CPU", 1)]
    assert (second.optim.name, second.optim.lr, second.schedule.epochs, second.published) == ("adamw", 0.3, 7.0, ())


def test_a_row_with_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('heading = "Ours"\n[[recipes]]\nname = "x"\noptim.lt = 1.0\n')
    with pytest.raises(ConfigError, match=r"optim\.lt"):
        read_recipes(str(tmp_path / "ours.py"))
