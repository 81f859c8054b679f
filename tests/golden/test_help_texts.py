"""Help and error texts of the command line are those that were reviewed."""

from tests.golden import help_texts


def test_help_and_error_texts_are_the_reviewed_ones() -> None:
    made = help_texts.files()
    assert {path.name for path in help_texts.FOLDER.iterdir()} == {path.name for path in made}
    changed = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert changed == [], "read the differences after `make pages`"


def test_every_wrong_line_is_refused() -> None:
    accepted = [
        f"{path.name}: {line}"
        for path, text in help_texts.files().items()
        for line in text.splitlines()
        if line == "(accepted)"
    ]
    assert accepted == []
