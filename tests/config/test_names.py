"""Other names of settings: each leads to a setting of today."""

import pytest

from vernier.config import described_settings
from vernier.config.names import ALIASES, OTHER_VALUES, RENAMED_SETTINGS, USUAL_NAMES

NEW = [*RENAMED_SETTINGS.values(), *ALIASES.values(), *USUAL_NAMES.values(), *OTHER_VALUES]


@pytest.mark.parametrize("name", NEW)
def test_another_name_leads_to_a_setting(name: str) -> None:
    assert name.removeprefix("recipe.") in described_settings()
