"""One test per private part of tyro: what a new release must still do."""

import pytest
import tyro

from vernier.cli.usage.tyro_private import completion_script, use_colours


def _greet(*, name: str = "you") -> int:
    """Say hello.

    On two lines.

    Args:
        name: Whom to greet, in a text that is long enough
            for a second line.
    """
    return 0


@pytest.fixture
def app() -> tyro.extras.SubcommandApp:
    app = tyro.extras.SubcommandApp()
    app.command(name="greet")(_greet)
    app.command(name="greet-again")(_greet)
    return app


def test_use_colours_sets_an_option_that_tyro_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """That help then has colours, or none, is tested on a terminal in test_init.py."""
    assert "ansi_codes" in tyro._experimental_options
    for on in (True, False):
        monkeypatch.setitem(tyro._experimental_options, "ansi_codes", not on)
        use_colours(on)
        assert tyro._experimental_options["ansi_codes"] is on


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_names_every_command(app: tyro.extras.SubcommandApp, shell: str) -> None:
    script = completion_script(app, shell, "greeter")
    assert "greet-again" in script
    assert "greeter" in script


def test_completion_script_keeps_a_help_text_on_one_line(app: tyro.extras.SubcommandApp) -> None:
    (specification,) = [
        line for line in completion_script(app, "bash", "greeter").splitlines() if line.startswith("COMPLETION_SPEC = ")
    ]
    assert "long enough for a second line." in specification
    assert "\\n" not in specification
