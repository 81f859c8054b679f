"""`vernier completion`: what a shell needs to complete commands, actions and flags with the Tab key."""

import contextlib
import io
import sys
from importlib import import_module
from typing import Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from vernier.errors import EXIT_DONE


def completion(shell: Positional[Literal["bash", "zsh", "fish"]], /) -> int:
    """Print a completion script for your shell. It works in shells started afterwards.

    bash: vernier completion bash > ~/.local/share/bash-completion/completions/vernier
    zsh: vernier completion zsh > a folder of your $fpath, as _vernier
    fish: vernier completion fish > ~/.config/fish/completions/vernier.fish

    Args:
        shell: Yours.
    """
    script = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(script):  # tyro prints it and exits
        _everything().cli(args=["--tyro-print-completion", shell], prog="vernier", config=(OmitArgPrefixes,))
    sys.stdout.writelines(_one_line_helps(line) for line in script.getvalue().splitlines(keepends=True))
    return EXIT_DONE


def _one_line_helps(line: str) -> str:
    """A help of several lines would be offered as completions from its second line on."""
    return line.replace("\\n", " ") if line.startswith("COMPLETION_SPEC = ") else line


def _everything() -> tyro.extras.SubcommandApp:
    """All commands, with the actions of the groups, which are otherwise read only when they are called."""
    from vernier.cli import COMMANDS, GROUPS

    app = tyro.extras.SubcommandApp()
    for name, function in COMMANDS.items():
        app.command(name=name)(function)
    for name, about in GROUPS.items():
        group = tyro.extras.SubcommandApp()
        for action, function in import_module(f"vernier.cli.{name}").COMMANDS.items():
            group.command(name=action)(function)
        app.command(group, name=name, help=about)
    return app
