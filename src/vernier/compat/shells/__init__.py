"""Completion in bash, zsh and fish: the command `vernier completion`, and what a shell offers at TAB.

Plugs in through `vernier.commands`. Everything that is offered follows from the declarations in `requests`; this
package knows no command.
"""

from vernier.requests.registry import CommandSet

_WHERE = "vernier.compat.shells.completion"
COMMANDS = CommandSet(
    commands={"completion": (f"{_WHERE}:Completion", f"{_WHERE}:completion")}, sections={"More": ("completion",)}
)
