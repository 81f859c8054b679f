"""Completion: `vernier completion` prints the script of a shell, and `vernier __complete` answers it at every TAB.

Answers follow from the declarations of the commands; recipes, models and data sets are imported only to name them.
"""

import os
import re
import shlex
import sys
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from vernier.errors import EXIT_DONE
from vernier.requests.catalog import Completion
from vernier.requests.declaring import Option, Request, options_of, summary_of
from vernier.requests.registry import find

from .commands import DEFAULT_ACTIONS, GROUPS, SECTIONS, about, actions_of
from .output import Terminal
from .parser import flags_of

Words = dict[str, str]
"""Words that fit, with what they are about."""
COMMAND = "__complete"
FILES = "@files"
"""In an answer: the shell adds names of files."""
RUNS_FOLDER = "runs"
KINDS_OF_SETTINGS = {"model.name": "model", "data.source": "data"}
OWN_DATA = {
    "shapes": "rendered shapes, built in",
    "synthetic": "random pixels, for benchmarks",
    "static": "one batch of random pixels, for benchmarks",
}


def completion(request: Completion, _: Terminal) -> int:
    sys.stdout.write(SCRIPTS[request.shell].replace("COMMAND", COMMAND).replace("FILES", FILES))
    return EXIT_DONE


def print_answer(arguments: list[str]) -> int:
    """Print what fits, one word per line with a tab and what it is about.

    The arguments are the words of the command line without its program, the one at the cursor last; or `--line`, the
    line up to the cursor, and the characters at which the shell breaks words (bash).
    """
    words, breaks = arguments, ""
    if arguments[:1] == ["--line"]:
        line, breaks = (*arguments[1:], "", "")[:2]
        words = split_line(line)[1:]
    current = words[-1] if words else ""
    cut = max((current.rfind(character) + 1 for character in breaks if character in "=:"), default=0)
    for word, text in answers(words or [""]).items():
        sys.stdout.write(f"{word if word == FILES else word[cut:]}\t{text}\n")
    return EXIT_DONE


def split_line(line: str) -> list[str]:
    """The words of a line, the one at its end last, also if it is empty or its quote is still open."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
            return [*words, ""] if not line or (line[-1].isspace() and not closing) else words
        except ValueError:
            continue
    return [*line.split(" ")]


def answers(words: list[str]) -> Words:
    """The words that fit at the end of a command line, with what they are about."""
    *before, current = words
    names = [name for section in SECTIONS.values() for name in section]
    if not before:
        extra = {"--help": "show all commands", "--version": "show the version"} if current.startswith("-") else {}
        return _fitting({name: _sentence(about(name)) for name in names} | extra, current)
    name, *rest = before
    if name not in names:
        return {}
    if name not in GROUPS:
        return _of_command(name, rest, current)
    actions, default = actions_of(name), DEFAULT_ACTIONS.get(name)
    if rest and rest[0] in actions:
        return _of_command(f"{name} {rest[0]}", rest[1:], current)
    offered = {} if rest else _fitting({each: _sentence(about(f"{name} {each}")) for each in actions}, current)
    return offered | (_of_command(f"{name} {default}", rest, current) if default else {})


def _of_command(name: str, before: list[str], current: str) -> Words:
    cls = find(name)
    assert cls is not None
    return answers_for(cls, before, current)


def answers_for(cls: type[Request], before: list[str], current: str) -> Words:
    """The words that fit after those of one command, with what they are about."""
    flags = flags_of(cls)
    takes = {flag: each.option for flag, each in flags.items() if each.value is None}
    flag, equals, value = current.partition("=")
    for position in range(1, min(3, len(before)) + 1):  # `--files TRAIN VAL` takes several words
        option = takes.get(before[-position])
        if option is not None and position <= option.form.count:
            return _values(option, current)
    if equals and flag in takes:
        return {word if word == FILES else f"{flag}={word}": text for word, text in _values(takes[flag], value).items()}
    arguments = [option for option in options_of(cls) if option.declared.positional]
    number = _count_arguments(before, takes)
    if not current.startswith("-") and arguments and (number < len(arguments) or arguments[-1].declared.repeats):
        return _values(arguments[min(number, len(arguments) - 1)], current)
    if current and not current.startswith("-"):
        return {}
    shown = {
        # the opposite of a switch that is off by default is understood, but nobody needs to see it
        flag: ("off: " if each.value is False else "") + _sentence(each.option.declared.help)
        for flag, each in flags.items()
        if (each.value is not False or each.option.default is not False)
        and (flag not in before or each.option.declared.repeats or each.option.form.kind == "settings")
    }
    return _fitting(shown | {"--help": "Explain this command"}, current or "--")


def _count_arguments(words: list[str], takes: dict[str, Option]) -> int:
    """How many of the words are neither flags nor values of flags."""
    count = values = 0
    for word in words:
        if values:
            values -= 1
        elif word.startswith("-"):
            values = takes[word].form.count if word in takes else 0
        else:
            count += 1
    return count


def _values(option: Option, current: str) -> Words:
    """What a value can be. Files are offered if no name fits, because a folder has many others; data is often one."""
    form, kinds = option.form, option.declared.completes
    done = current[: current.rfind(",") + 1] if form.several and not option.declared.repeats else ""
    names = dict.fromkeys((*form.choices, *option.declared.values), "")
    if option.name == "device":
        names |= dict.fromkeys(re.findall(r"[a-z]+", option.metavar), "")
    for kind in kinds:
        names |= _settings(current) if kind == "setting" else _names(kind)
    fitting = _fitting({done + name: text for name, text in names.items()}, current)
    takes_files = form.kind == "path" or any(kind in ("file", "folder", "run") for kind in kinds)
    return fitting | ({FILES: ""} if takes_files and (not fitting or (not current and "data" in kinds)) else {})


def _names(kind: str) -> Words:
    if kind == "run":
        return dict.fromkeys(_runs(), "")
    if kind == "recipe":
        from vernier import recipes

        return {row.name: f"{row.model} on {row.data}" for row in recipes.table()}
    if kind == "model":
        from vernier.models import describe

        return {model.name: model.summary for model in describe()}
    if kind == "data":
        get = find("data get")
        assert get is not None
        return OWN_DATA | dict.fromkeys(options_of(get)[0].form.choices, summary_of(get))
    return {}


def _runs() -> list[str]:
    """The folders in runs/, newest first, without names that could steer a terminal."""
    try:
        with os.scandir(RUNS_FOLDER) as entries:
            names = [e.name for e in entries if e.is_dir() and e.name.isprintable() and not e.name.startswith(".")]
    except OSError:
        return []
    return [f"{RUNS_FOLDER}/{name}" for name in sorted(names, reverse=True)]


def _settings(current: str) -> Words:
    """Settings with their equals sign, or the values of one that has been typed."""
    from vernier.config import described_settings, optimizers

    name, equals, _ = current.partition("=")
    if not equals:
        return {f"{setting}=": _sentence(text) for setting, (text, _) in described_settings().items()}
    if name in KINDS_OF_SETTINGS:
        values = _names(KINDS_OF_SETTINGS[name])
    else:
        hint = described_settings().get(name, ("", None))[1]
        values = dict.fromkeys(optimizers() if name == "optim.name" else _choices(hint), "")
    return {f"{name}={value}": text for value, text in values.items()}


def _choices(hint: Any) -> list[str]:
    """The values of a setting that has only a few: words, or true and false."""
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) in (Union, UnionType):
        return [word for part in get_args(hint) for word in _choices(part)]
    return [word for word in get_args(hint) if word and isinstance(word, str)] if get_origin(hint) is Literal else []


def _sentence(text: str) -> str:
    """The first sentence, short enough for a line next to the word."""
    first = re.split(r"[;:]\s|\.\s(?=[A-Z])", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    return first if len(first) <= 70 else f"{first[:67]}..."


def _fitting(names: Words, current: str) -> Words:
    return {name: text for name, text in names.items() if name.startswith(current)}


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
