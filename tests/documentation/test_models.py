"""The figures of models that commands print without torch are those of the real modules."""

from tests.documentation import models


def test_the_figures_of_models_are_up_to_date() -> None:
    """Counted again in every module. `make pages` writes the file."""
    assert models.FILE.read_text(encoding="utf-8") == models.text()
