"""Options that several commands share are declared once."""

from vernier.config import described_settings
from vernier.requests.declaring import options_of
from vernier.requests.registry import COMMANDS, INTERNAL, find


def _options() -> list[tuple[str, object]]:
    classes = [find(name) for name in COMMANDS if name not in INTERNAL]
    return [(each.name, each) for cls in classes if cls is not None for each in options_of(cls)]


def test_the_same_option_has_the_same_aliases_and_setting_everywhere() -> None:
    settings = {name: {each.sets for other, each in _options() if other == name} for name, _ in _options()}  # type: ignore[attr-defined]
    for name in ("device", "machine", "settings", "quiet", "json"):
        assert len(settings[name]) == 1, name


def test_options_change_settings_that_exist() -> None:
    known = set(described_settings())
    unknown = [each.sets for _, each in _options() if each.sets and each.sets not in known]  # type: ignore[attr-defined]
    assert unknown == []


def test_out_has_its_short_name_everywhere() -> None:
    assert [name for name, each in _options() if name == "out" and "-o" not in each.names] == []  # type: ignore[attr-defined]
