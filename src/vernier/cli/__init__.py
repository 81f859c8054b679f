"""The command line: one function per command, which reads its flags, calls the code that does the work, and prints.

`COMMANDS` lists the commands; a command with actions (`vernier data make`) is a group with its own module. `info`,
`model` and `report` hold the commands, `flags`, `output` and `launching` what they share. May import everything, and
nothing imports it. torch is imported only inside the functions that need it, so that `--help` is fast.
"""

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import tyro
from tyro.conf import OmitArgPrefixes

from vernier import __version__
from vernier.config import RenamedSetting
from vernier.engine.processes.launch import record_failure
from vernier.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ConfigError,
    RunFailed,
    did_you_mean,
    environment_error,
)

from .info.catalogue import models, recipes
from .info.completion import completion
from .info.doctor import doctor
from .info.plan import plan
from .launching import COMMAND_LINE
from .model.evaluate import evaluate
from .model.export import export
from .model.predict import predict
from .model.profile import profile
from .model.train import train
from .output import say
from .report.compare import compare
from .report.convert import convert
from .report.page import report
from .tyro_private import use_colours

WELCOME = """\
Vernier trains, evaluates, benchmarks and profiles vision models, and reports what it measured.

  vernier train          train on the built-in data set of rendered shapes, about a minute on two cores
  vernier recipes        list everything that can be trained
  vernier doctor         show what this machine can do

vernier --help lists every command; vernier COMMAND --help explains one.
"""

COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "eval": evaluate,
    "predict": predict,
    "export": export,
    "recipes": recipes,
    "models": models,
    "profile": profile,
    "compare": compare,
    "report": report,
    "convert": convert,
    "plan": plan,
    "doctor": doctor,
    "completion": completion,
}
GROUPS = {
    "bench": "Measure training, inference, scaling and loading, with intervals.",
    "data": "Make, prepare, verify, inspect or fetch data sets.",
    "study": "Device variability: measure every device, analyse, learn a baseline, check a machine, merge.",
}
"""Commands with actions; the actions of `data` are in `vernier.cli.data.COMMANDS`."""


def actions_of(group: str) -> dict[str, Callable[..., int]]:
    """Import a group's actions."""
    actions: dict[str, Callable[..., int]] = import_module(f"vernier.cli.{group}").COMMANDS
    return actions


def parser_of(commands: dict[str, Callable[..., int]]) -> tyro.extras.SubcommandApp:
    """Make a parser of these commands."""
    app = tyro.extras.SubcommandApp()
    for name, function in commands.items():
        app.command(name=name)(function)
    return app


def _app(arguments: list[str]) -> tuple[tyro.extras.SubcommandApp, list[str], str, str]:
    """Choose the commands to parse with; also the arguments left for them, the program name and its description."""
    name = arguments[0]
    _check_name(name, [*COMMANDS, *GROUPS], "vernier", "command")
    if name in GROUPS and len(arguments) > 1:
        actions = actions_of(name)
        _check_name(arguments[1], list(actions), f"vernier {name}", "action")
        return parser_of(_for_help(actions, arguments[1])), arguments[1:], f"vernier {name}", GROUPS[name]
    commands = _for_help({**COMMANDS, **{group: _group(group) for group in GROUPS}}, name)
    return parser_of(commands), arguments, "vernier", "Train, evaluate and measure vision models."


def _for_help(commands: dict[str, Callable[..., int]], argument: str) -> dict[str, Callable[..., int]]:
    """Give the commands; for a list in --help each with the first line of its docstring only."""
    if argument not in ("-h", "--help"):
        return commands

    def brief(function: Callable[..., int]) -> Callable[..., int]:
        def command() -> int:
            return EXIT_DONE

        command.__doc__ = (function.__doc__ or "").strip().splitlines()[0]
        return command

    return {name: brief(function) for name, function in commands.items()}


def _check_name(argument: str, names: list[str], prog: str, kind: str) -> None:
    if not argument.startswith("-") and argument not in names:
        raise ConfigError(
            f"{prog} has no {kind} {argument!r}. {did_you_mean(argument, names)} {prog} --help lists them."
        )


def _group(name: str) -> Callable[[], int]:
    """Create the command that runs when a group is called without an action."""

    def ask() -> int:
        actions = ", ".join(actions_of(name))
        raise ConfigError(f"Which action? vernier {name} {actions}; vernier {name} --help explains.")

    ask.__doc__ = f"{GROUPS[name]} (`vernier {name} --help` lists the actions.)"
    return ask


def main(arguments: list[str] | None = None) -> int:
    """Run one command; turn errors meant for people into a message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in ([], ["--version"], ["-V"]):
        sys.stdout.write(f"vernier {__version__}\n" if arguments else WELCOME)
        return EXIT_DONE
    # OpenMP threads that spin long while waiting make training many times slower when other programs use the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    COMMAND_LINE[:] = arguments
    use_colours(not os.environ.get("NO_COLOR") and sys.stdout.isatty() and sys.stderr.isatty())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RenamedSetting)
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            app, rest, prog, about = _app(arguments)
            code: int = app.cli(
                args=rest, prog=prog, description=about, config=(OmitArgPrefixes,), sort_subcommands=False
            )
            return code
    except (ConfigError, RunFailed) as error:
        return _fail(str(error), EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)
    except KeyboardInterrupt:
        say("vernier: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
    except OSError as error:
        if not (refused := environment_error(error)):
            raise
        return _fail(f"{refused}.", EXIT_FAILED)


def _fail(message: str, code: int) -> int:
    """Print an error, and record it for the launcher of several processes."""
    record_failure(message)
    say(f"vernier: {message}")
    return code


_show_python_warning = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *details: Any) -> None:
    """A note about a renamed setting in one line; other warnings as Python shows them."""
    if issubclass(category, RenamedSetting):
        say(f"vernier: {message}")
    else:
        _show_python_warning(message, category, *details)
