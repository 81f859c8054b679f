"""The generated reference is up to date and complete."""

from pathlib import Path

import pytest

from tests.documentation.reference import commands_page, pages, settings_page
from vernier.config import Config, override_from_text
from vernier.requests.declaring import options_of
from vernier.requests.registry import COMMANDS, INTERNAL, find


@pytest.mark.parametrize("path", list(pages()), ids=lambda p: p.stem)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "run: make pages"


def test_every_command_and_option_is_there() -> None:
    page = commands_page()
    for name in (name for name in COMMANDS if name not in INTERNAL):
        cls = find(name)
        assert cls is not None
        section = page.partition(f"### vernier {name}\n")[2].partition("\n### ")[0]
        for option in options_of(cls):
            assert option.help, f"vernier {name} {option.name} has no help"
            flag = "--set" if option.name == "settings" else option.flag
            assert option.positional or option.edge == "python" or f"`{flag}`" in section


def test_every_setting_can_be_set_to_its_documented_default() -> None:
    rows = [line.split(" | ") for line in settings_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    for name, default, *_ in rows:
        if default.strip(" `[]"):
            override_from_text(Config(), f"{name.strip('| `')}={default.strip('` ')}")
