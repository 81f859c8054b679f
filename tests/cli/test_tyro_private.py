"""One test per private part of tyro: what a new release must still do."""

import subprocess
import sys

import pytest
import tyro

from vernier.cli.tyro_private import completion_script, use_colours


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


@pytest.mark.parametrize("on", [True, False])
def test_use_colours_switches_the_colours_of_help(on: bool) -> None:
    program = (
        "import tyro; from vernier.cli.tyro_private import use_colours; "
        f"use_colours({on}); tyro.cli(lambda *, name='you': None, args=['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ("\x1b[" in done.stdout) == on


def test_use_colours_sets_a_name_that_tyro_knows() -> None:
    before = tyro._experimental_options["ansi_codes"]
    use_colours(before)
    assert tyro._experimental_options["ansi_codes"] == before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_names_every_command(app: tyro.extras.SubcommandApp, shell: str) -> None:
    script = completion_script(app, shell, "greeter")
    assert "greet-again" in script
    assert "greeter" in script


def test_completion_script_keeps_a_help_text_on_one_line(app: tyro.extras.SubcommandApp) -> None:
    (specification,) = [
        line for line in completion_script(app, "bash", "greeter").splitlines() if line.startswith("COMPLETION_SPEC = ")
    ]
    assert "Say hello." in specification
    assert "\\n" not in specification
