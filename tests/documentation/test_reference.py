"""The generated reference is up to date and complete."""

from pathlib import Path

import pytest

from tests.documentation.reference import arguments_of, commands_page, pages, settings_page
from vernier.cli import COMMANDS, GROUPS, INTERNAL, actions_of
from vernier.config import Config, override_from_text


@pytest.mark.parametrize("path", list(pages()), ids=lambda p: p.stem)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "run: make pages"


def test_every_command_and_flag_is_there() -> None:
    page = commands_page()
    functions = {**COMMANDS} | {
        f"{group} {action}": function
        for group in GROUPS
        for action, function in actions_of(group).items()
        if action not in INTERNAL
    }
    for name, function in functions.items():
        section = page.partition(f"### vernier {name}\n")[2].partition("\n### ")[0]
        for argument in arguments_of(function):
            assert all(flag in section for flag in argument.names if flag.startswith("-")), (name, argument.names)
            assert argument.text, f"vernier {name} {argument.names} has no help"


def test_every_setting_can_be_set_to_its_documented_default() -> None:
    rows = [line.split(" | ") for line in settings_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    for name, default, *_ in rows:
        if default.strip(" `[]"):
            override_from_text(Config(), f"{name.strip('| `')}={default.strip('` ')}")
