"""The command line: finds the command, builds its request from what was typed, has it carried out, and prints.

`parser` reads command lines by the declarations of `vernier.requests`, whose `registry` lists the commands; `help` and
`wording` word them; the other modules print results, by subject. The work is done by `vernier.api`, as for Python. May
import everything, and nothing imports it. torch is imported only inside the functions that need it, so that `--help` is
fast.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.addresses import hide_credentials_in_tracebacks, redact, take_credentials
from vernier.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_STOPPED,
    EXIT_USAGE,
    ConfigError,
    Refusal,
    advice,
    did_you_mean,
    environment_error,
)
from vernier.report.live.terminal import OUTPUT_NAME, discard_results
from vernier.requests.registry import DEFAULT_ACTIONS, GROUPS, OTHER_NAMES, SECTIONS, actions_of, find, function_of
from vernier.signals import StopRequested, announce_stop, pending_stop
from vernier.wording import printable

from .help import command_help, help_text
from .wording import ShellWords

if TYPE_CHECKING:
    from vernier.requests.declaring import Request
    from vernier.requests.wording import Words

WELCOME = """\
Vernier trains, evaluates, benchmarks and profiles vision models, and reports what it measured.

  vernier train          train on the built-in data set of rendered shapes, about a minute on two cores
  vernier recipes        list everything that can be trained
  vernier doctor         show what this machine can do

vernier --help lists every command; vernier COMMAND --help explains one.
"""
HELP, HELP_ALL = ("-h", "--help"), "--help-all"


def _find_command(words: list[str]) -> tuple[str, list[str]]:
    """The command that words begin with, and the words after it. Raises ConfigError."""
    name, *rest = words
    names = [name for section in SECTIONS.values() for name in section]
    name = OTHER_NAMES.get(name, name)
    _check_name(name, names, "vernier", "command")
    if name not in GROUPS:
        return name, rest
    rest[:1] = [OTHER_NAMES.get(f"{name} {word}", word).split()[-1] for word in rest[:1]]
    actions, default = actions_of(name), DEFAULT_ACTIONS.get(name)
    # The processes of benchmarks start `bench arm`; no help lists it.
    known = [*actions, "arm"] if name == "bench" else actions
    if default is not None and not (rest and rest[0] in known):
        return f"{name} {default}", rest
    if not rest:
        raise ConfigError(f"Which action? vernier {name} {', '.join(actions)}; vernier {name} --help explains.")
    if rest[0] not in known:
        _check_name(rest[0], actions, f"vernier {name}", "action")
    return f"{name} {rest[0]}", rest[1:]


def _check_name(argument: str, names: list[str], prog: str, kind: str) -> None:
    if argument.startswith("-"):
        raise ConfigError(f"{prog} needs its {kind} before {argument}. {prog} --help lists them.")
    if argument not in names:
        raise ConfigError(
            f"{prog} has no {kind} {argument!r}. {did_you_mean(argument, names)} {prog} --help lists them."
        )


def _run(words: list[str]) -> int:
    """Find the command and carry it out, or print its help. Raises ConfigError."""
    from vernier.api.crossing import FLAG

    from .output import Terminal
    from .parser import parse

    options = words[: words.index("--")] if "--" in words else words
    if len(words) == 2 and words[1] == "help":
        options = words = [words[0], "--help"]
    wants_help = any(word in (*HELP, HELP_ALL) for word in options)
    if wants_help and words[0] in GROUPS and (len(words) == 1 or words[1].startswith("-")):
        sys.stdout.write(help_text(words[0]))
        return EXIT_DONE
    command, rest = _find_command(words)
    cls = find(command)
    assert cls is not None
    prog = f"vernier {command}"
    if wants_help:
        sys.stdout.write(command_help(cls, prog, everything=HELP_ALL in options))
        return EXIT_DONE
    request, shell = _read_request(cls, rest[1:]) if rest[:1] == [FLAG] else parse(cls, rest, prog)
    session = Terminal(shell, quiet=bool(getattr(request, "quiet", False)))
    try:
        code = function_of(command)(request, session)
    except Refusal as error:
        error.word = error.word or shell.word
        raise
    except OSError as error:
        if text := advice(error):
            error.add_note(shell.word(text))  # in the words of the command, which `main` does not know
        raise
    sys.stdout.flush()
    return code


def _read_request(cls: "type[Request]", words: list[str]) -> "tuple[Request, Words]":
    """The request that another process wrote, with the words of its caller."""
    from vernier.api.crossing import read_request
    from vernier.api.wording import PythonWords

    request, from_python, typed = read_request(cls, Path(*words[:1]))
    return request, PythonWords(cls, request) if from_python else ShellWords(cls, request, typed)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; turn errors meant for people into a message and an exit code."""
    typed = sys.argv[1:] if arguments is None else arguments
    words = [*typed[1:], "--help"] if typed[:1] == ["help"] else typed
    if words in ([], ["--version"], ["-V"], ["version"]):
        from vernier.version import describe_version

        sys.stdout.write(f"vernier {describe_version()}\n" if words else WELCOME)
        return EXIT_DONE
    try:
        if words[0] in (*HELP, HELP_ALL):
            sys.stdout.write(help_text())
            sys.stdout.flush()
            return EXIT_DONE
        return _run_command(words, own_process=arguments is None)
    except Refusal as error:
        error.word = error.word or ShellWords(None).word
        return _fail(str(error), EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)
    except StopRequested as request:
        return _stop(str(request))
    except KeyboardInterrupt as interrupt:
        _say(f"{str(interrupt) or 'interrupted'}")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_results()
        return EXIT_FAILED
    except Exception as error:
        from vernier.devices import describe_lost_device

        refused = environment_error(error) if isinstance(error, OSError) else ""
        if not (message := pending_stop() or refused or describe_lost_device(error)):
            raise
        if isinstance(error, OSError) and error.filename == OUTPUT_NAME:
            discard_results()
        elif isinstance(error, OSError) and refused:
            message = " ".join([f"{message}.", *getattr(error, "__notes__", ())]).rstrip(".")
        return _fail(f"{message}.", EXIT_FAILED)


def _run_command(words: list[str], *, own_process: bool) -> int:
    """Prepare the process for a command, and carry it out."""
    from vernier.api.starting import limit_spinning

    # Not in a program that calls `main`: the hook is of the whole process.
    if own_process:
        hide_credentials_in_tracebacks()
    limit_spinning()
    return _run(take_credentials(words))


def _stop(signal_name: str) -> int:
    """Print which signal came before the first step; one process of several does."""
    from vernier.engine.processes.launch import topology

    if topology().first:
        announce_stop(signal_name)
    return EXIT_STOPPED


def _fail(message: str, code: int) -> int:
    """Print an error, and record it for the launcher of several processes."""
    from vernier.engine.processes.launch import record_failure

    if name := pending_stop():
        return _stop(name)
    record_failure(redact(message))
    _say(message)
    return code


def _say(message: str) -> None:
    """Print an error on standard error; results go through the terminal of a command."""
    sys.stderr.write(f"{printable(redact(f'vernier: {message}'))}\n")
