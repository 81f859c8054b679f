"""Every command has a request, a function and a place in the help."""

import inspect

import pytest

from vernier.requests import registry
from vernier.requests.declaring import GROUPS as HEADINGS
from vernier.requests.declaring import options_of, summary_of
from vernier.requests.registry import (
    COMMANDS,
    CORE,
    GROUPS,
    INTERNAL,
    OTHER_NAMES,
    SECTIONS,
    CommandSet,
    about,
    actions_of,
    find,
    function_of,
)


def test_every_command_is_declared_listed_and_carried_out() -> None:
    listed = {name for names in SECTIONS.values() for name in names}
    assert listed == {name.split()[0] for name in COMMANDS}
    for name in COMMANDS:
        cls = find(name)
        assert cls is not None
        assert cls.command == name
        assert summary_of(cls).endswith((".", "?"))
        parameters = list(inspect.signature(function_of(name)).parameters)
        assert len(parameters) == 2, name
    assert find("no such") is None
    assert {name.split()[0] for name in COMMANDS if " " in name} == set(GROUPS)


def test_every_option_has_help_and_a_known_heading() -> None:
    for name in COMMANDS:
        cls = find(name)
        assert cls is not None
        for option in options_of(cls):
            assert len(option.help) > 8, (name, option.name)
            assert option.heading in HEADINGS, (name, option.name)


def test_results_can_be_had_as_json() -> None:
    without = [name for name in COMMANDS if not any(each.name == "json" for each in options_of(find(name)))]  # type: ignore[arg-type]
    assert sorted(without) == ["bench arm", "completion"]
    assert INTERNAL == ("bench arm",)


def test_no_two_options_of_a_command_share_a_flag() -> None:
    for name in COMMANDS:
        cls = find(name)
        assert cls is not None
        flags = [flag for each in options_of(cls) for flag in each.flags]
        assert len(flags) == len(set(flags)), (name, sorted(flags))


def test_a_set_adds_commands_and_does_not_change_those_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = CommandSet(
        commands={"train": ("theirs:Train", "theirs:train"), "weigh": ("theirs:Weigh", "theirs:weigh")},
        sections={"Measure": ("weigh",), "Theirs": ("weigh",)},
    )
    monkeypatch.setattr(registry, "load_group", lambda group, kind: {"theirs": outside})
    commands = registry._merged(lambda each: each.commands)
    assert commands["train"] == CORE.commands["train"]
    assert commands["weigh"] == ("theirs:Weigh", "theirs:weigh")
    assert registry._sections()["Measure"] == ("weigh",)
    assert list(registry._sections())[-1] == "Theirs"


def test_help_lists_every_command_once_with_one_line() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    assert len(names) == len(set(names))
    assert all(about(name).endswith((".", "?")) for name in names)
    assert {name.split()[0] for name in OTHER_NAMES.values()} <= set(names)
    assert "arm" not in actions_of("bench")
