"""`vernier completion`: prints the script with which a shell completes commands, actions and flags."""

import sys
from typing import Literal

import tyro
from tyro.conf import Positional

from vernier.cli.usage.tyro_private import completion_script
from vernier.errors import EXIT_DONE


def completion(shell: Positional[Literal["bash", "zsh", "fish"]], /) -> int:
    """Print a completion script for your shell. It works in shells started afterwards.

    Args:
        shell: Which shell. For zsh, write the script as _vernier into a folder of your $fpath.

    Examples:
        vernier completion bash > ~/.local/share/bash-completion/completions/vernier
        vernier completion zsh > ~/.zfunc/_vernier
        vernier completion fish > ~/.config/fish/completions/vernier.fish
    """
    sys.stdout.write(completion_script(_everything(), shell, "vernier"))
    return EXIT_DONE


def _everything() -> tyro.extras.SubcommandApp:
    """Collect all commands and the actions of all groups, which are otherwise imported only when called."""
    from vernier.cli import COMMANDS, GROUPS, actions_of, parser_of

    app = parser_of(COMMANDS)
    for name, about in GROUPS.items():
        app.command(parser_of(actions_of(name)), name=name, help=about)
    return app
