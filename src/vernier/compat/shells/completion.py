"""Completion: `vernier completion` prints the script of a shell, with every word that can follow; it calls nothing."""

import shlex
import sys
from typing import TYPE_CHECKING, Literal

from vernier.cli.parser import flags_of
from vernier.errors import EXIT_DONE
from vernier.requests.declaring import Option, Request, argument, options_of, request
from vernier.requests.registry import COMMANDS, DEFAULT_ACTIONS, GROUPS, INTERNAL, SECTIONS, actions_of, find

if TYPE_CHECKING:
    from vernier.cli.output import Terminal

Row = tuple[tuple[str, ...], list[str]]
"""A pattern, as texts with anything between them, and the words that fit after a line like it."""


@request("completion")
class Completion(Request):
    """Print a completion script for your shell. It works in shells started afterwards.

    It completes commands, flags, recipes, models, values from a fixed list, and files. It knows what is installed
    when it is printed: print it again after an upgrade.

    Examples:
        vernier completion bash > ~/.local/share/bash-completion/completions/vernier
        vernier completion zsh > ~/.zfunc/_vernier
        vernier completion fish > ~/.config/fish/completions/vernier.fish
    """

    shell: Literal["bash", "zsh", "fish"] = argument(
        help="Which shell. For zsh, write the script as _vernier into a folder of your $fpath."
    )


def completion(chosen: Completion, _: "Terminal") -> int:
    # Imported here, as `vernier --help` imports every request.
    from vernier.templates import lines_of, open_templates

    templates = open_templates(__file__, quote=_fish_quote if chosen.shell == "fish" else shlex.quote)
    sys.stdout.write("\n".join(lines_of(templates, chosen.shell, {"rows": _rows()})) + "\n")
    return EXIT_DONE


def _rows() -> list[Row]:
    """Lines up to the cursor, with a hyphen before them if a flag is typed; the first that matches counts."""
    rows: list[Row] = [((" ",), [name for names in SECTIONS.values() for name in names])]
    rows.append((("- ",), ["--help", "--version"]))
    # Backwards, so that `data get` comes before `data`.
    for name in sorted({*COMMANDS, *GROUPS} - set(INTERNAL), reverse=True):
        cls = find(f"{name} {DEFAULT_ACTIONS.get(name, '')}".strip())
        flags = {} if cls is None else flags_of(cls)
        # The opposite of a switch that is off by default is understood, but nobody needs to see it.
        shown = [flag for flag, each in flags.items() if each.value is not False or each.option.default is not False]
        rows.append(((f"-{name} ", ""), [*shown, "--help"]))
        for flag, each in flags.items():
            if words := _values(each.option):
                rows.append(((f"{name} ", f"{flag} "), words))
        first = [] if cls is None else [_values(each) for each in options_of(cls) if each.positional][:1]
        rows.append(((f"{name} ",), sum(first, actions_of(name) if name in GROUPS else [])))
    return rows


def _values(option: Option) -> list[str]:
    """The words that an option can be, without files."""
    from vernier import models, recipes

    named = [word for word in option.metavar.split("|") if word.islower()] if option.name == "device" else []
    if "RECIPE" in option.metavar:
        named += recipes.names()
    if "RECIPE" in option.metavar or option.name == "model":
        named += [model.name for model in models.describe()]
    return list(dict.fromkeys((*option.form.choices, *named, *option.other_values)))


def _fish_quote(text: str) -> str:
    # Unlike other shells, fish reads backslashes between single quotes.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
