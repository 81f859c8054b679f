"""`vernier completion`: prints the script with which a shell completes commands, flags, recipes, settings and runs.

The scripts ask `vernier __complete` at every TAB; `vernier.completing` answers from the table that is made here.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from vernier.cli.usage.help_texts import first_line
from vernier.cli.usage.tyro_private import Flag, arguments_of, flags_of
from vernier.completing import COMMAND, FILES, Table, source_stamp, table_file
from vernier.config import Config
from vernier.config.settings import Mode, Precision
from vernier.errors import EXIT_DONE
from vernier.store import write_json

KINDS = {
    "RECIPE": ("recipe", "network"),
    "NETWORK": ("network",),
    "RUN": ("run",),
    "NAME=VALUE": ("setting",),
    "SET": ("data",),
}
"""By the words of a metavar: names that a value can be."""
FILE_WORDS = {"RECIPE", "RUN", "SET", "FILE", "DIR", "PATH", "CHECKPOINT", "FOLDER", "IMAGE", "CSV", "SRC", "OUT"}
"""Words of a metavar that mean a file or a folder."""
LISTS = {"--precision": get_args(Precision), "--mode": get_args(Mode)}
"""All values of flags whose metavar names some of them."""


def completion(shell: Positional[Literal["bash", "zsh", "fish"]], /) -> int:
    """Print a completion script for your shell. It works in shells started afterwards.

    It completes commands, flags, recipes, networks, data sets, settings and runs. The script asks the `vernier` that
    you type, so it need not be printed again after an update.

    Args:
        shell: Which shell. For zsh, write the script as _vernier into a folder of your $fpath.

    Examples:
        vernier completion bash > ~/.local/share/bash-completion/completions/vernier
        vernier completion zsh > ~/.zfunc/_vernier
        vernier completion fish > ~/.config/fish/completions/vernier.fish
    """
    make_table()
    sys.stdout.write(SCRIPTS[shell].replace("COMMAND", COMMAND).replace("FILES", FILES))
    return EXIT_DONE


def make_table() -> Table:
    """Describe all commands and names, and keep that in the cache if it can be written."""
    table = {"stamp": source_stamp(), **_commands(), "names": _names(), "choices": _setting_choices()}
    with suppress(OSError):
        table_file().parent.mkdir(parents=True, exist_ok=True)
        write_json(table_file(), table, sync=False)
    return table


def _commands() -> Table:
    from vernier.cli import COMMANDS, DEFAULT_ACTIONS, GROUPS, INTERNAL, SECTIONS, actions_of

    entries: Table = {}
    for name in (name for names in SECTIONS.values() for name in names):
        if name in GROUPS:
            actions = {action: _command(f) for action, f in actions_of(name).items() if action not in INTERNAL}
            entries[name] = {"about": GROUPS[name], "actions": actions}
        else:
            entries[name] = _command(COMMANDS[name])
    return {"commands": entries, "default_actions": DEFAULT_ACTIONS}


def _command(function: Callable[..., int]) -> Table:
    flags = {
        name: {
            "about": f"off: {_sentence(flag.about)}"
            if name.startswith("--no-") and flag.pair
            else _sentence(flag.about),
            "value": None if flag.switch or flag.pair else _value(flag),
            "repeatable": flag.repeatable,
        }
        for flag in flags_of(function)
        for name in (*flag.names, *(f"--no-{name[2:]}" for name in flag.names if flag.pair))
    }
    flags["--help"] = {"about": "Explain this command.", "value": None, "repeatable": False}
    return {
        "about": _sentence(first_line(function)),
        "flags": flags,
        "arguments": [_value(a) for a in arguments_of(function)],
    }


def _value(flag: Flag) -> Table:
    """What a value can be, by the words of its metavar: lower-case ones are values themselves."""
    text = flag.metavar.replace("...", "").replace("NAME|PATH", "SET")
    words = [word for word in re.split(r"[|,\s]+", text) if word]
    literal = [word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)]
    return {
        "kinds": [kind for word in words for kind in KINDS.get(word, ())],
        "choices": next((LISTS[name] for name in flag.names if name in LISTS), literal),
        "list": "," in text,
        "files": any(word in FILE_WORDS for word in words),
        "repeatable": flag.metavar.endswith("..."),
    }


def _sentence(text: str) -> str:
    """The first sentence, short enough for a line beside the word."""
    first = re.split(r"[;:]\s|\.\s(?=[A-Z])", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    return first if len(first) <= 70 else f"{first[:67]}..."


def _names() -> dict[str, dict[str, str]]:
    from vernier import recipes
    from vernier.data.preparing.fetch import SETS
    from vernier.models import describe

    own = {
        "shapes": "rendered shapes, built in",
        "synthetic": "random pixels, for benchmarks",
        "static": "one batch of random pixels, for benchmarks",
    }
    return {
        "recipe": {row.name: f"{row.model} on {row.data}" for row in recipes.table()},
        "network": {m.name: m.summary for m in describe()},
        "data": own | dict.fromkeys(SETS, "vernier data get"),
        "setting": {name: _sentence(about) for name, about, _ in _settings()},
    }


def _settings(group: type = Config, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every setting with its line of help and its type."""
    hints = get_type_hints(group)
    for field in fields(group):
        name, hint = f"{path}{field.name}", hints[field.name]
        if is_dataclass(hint):
            yield from _settings(hint, f"{name}." if name != "recipe" else "")  # type: ignore[arg-type]
        else:
            yield name, field.metadata.get("doc", ""), hint


def _setting_choices() -> dict[str, list[str]]:
    """The values of settings that have only a few: words, or true and false."""
    choices = {bool: ["true", "false"]}
    values = {name: choices.get(hint) or _words_of(hint) for name, _, hint in _settings()}
    return {name: words for name, words in values.items() if words}


def _words_of(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [word for word in get_args(hint) if isinstance(word, str) and word]
    if get_origin(hint) in (Union, UnionType):
        return [word for part in get_args(hint) for word in _words_of(part)]
    return []


BASH = """\
# Completion of vernier for bash, made by `vernier completion bash`.
_vernier() {
  local word about files= program=${COMP_WORDS[0]/#\\~/$HOME} line=${COMP_LINE:0:COMP_POINT}
  COMPREPLY=()
  while IFS=$'\\t' read -r word about; do
    if [[ $word == FILES ]]; then files=1; else COMPREPLY+=("$word"); fi
  done < <("$program" COMMAND --line "$line" "$COMP_WORDBREAKS" 2>/dev/null)
  if [[ $files ]]; then
    word=${COMP_WORDS[COMP_CWORD]}
    [[ $word == [=:] ]] && word=
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$word")
    type compopt &>/dev/null && compopt -o filenames
  fi
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
    type compopt &>/dev/null && compopt -o nospace
  fi
}
complete -F _vernier vernier
"""
ZSH = """\
#compdef vernier
# Completion of vernier for zsh, made by `vernier completion zsh`.
_vernier() {
  local word about files
  local -a described unfinished
  while IFS=$'\\t' read -r word about; do
    case $word in
      FILES) files=1 ;;
      *=) unfinished+=("$word") ;;
      *) described+=("${word//:/\\\\:}:$about") ;;
    esac
  done < <(${(Q)words[1]/#\\~/$HOME} COMMAND "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
  (( $#described )) && _describe -V vernier described
  (( $#unfinished )) && compadd -S '' -a unfinished
  [[ -n $files ]] && _files
  return 0
}
if [[ $funcstack[1] == _vernier ]]; then _vernier "$@"; else compdef _vernier vernier; fi
"""
FISH = """\
# Completion of vernier for fish, made by `vernier completion fish`.
function __vernier_complete
    set -l words (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    set -l current (commandline -ct)
    set -l answers ($program COMMAND $words "$current" 2>/dev/null)
    string match -v 'FILES*' -- $answers
    string match -q 'FILES*' -- $answers; and __fish_complete_path "$current"
end
complete -c vernier -e
complete -c vernier -f -k -a '(__vernier_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
