"""The documentation's page about recipes."""

from tests.conftest import REPO
from tests.documentation.recipes import page


def test_the_documentation_is_up_to_date() -> None:
    assert (REPO / "docs" / "recipes.md").read_text() == page(), "run: make pages"
