"""The command line: one function a command, which reads its flags, calls the code that does the work, and prints.

`COMMANDS` is all there is; a command with actions of its own (`vernier data make`) is a group, with a file of its own.
torch is imported only by commands that need it, inside the function, so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module

import tyro
from tyro.conf import OmitArgPrefixes

from vernier.cli.info.catalogue import models, recipes
from vernier.cli.info.completion import completion
from vernier.cli.info.doctor import doctor
from vernier.cli.info.plan import plan
from vernier.cli.launching import COMMAND_LINE
from vernier.cli.model.evaluate import evaluate, export, predict
from vernier.cli.model.profile import profile
from vernier.cli.model.train import train
from vernier.cli.output import say
from vernier.cli.report.compare import compare
from vernier.cli.report.convert import convert
from vernier.cli.report.page import report
from vernier.engine.processes.launch import record_failure
from vernier.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ConfigError,
    RunFailed,
    did_you_mean,
    of_the_machine,
)

WELCOME = """\
Vernier trains, evaluates, benchmarks and profiles vision models, and reports what it measured.

  vernier train          train the embedded default: rendered shapes, about a minute on two cores
  vernier recipes        what else can be trained
  vernier doctor         what this machine can do

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
"""Commands with actions; the actions of `data` are the COMMANDS of vernier.cli.data."""


def _app(arguments: list[str]) -> tuple[tyro.extras.SubcommandApp, list[str], str, str]:
    """The commands that the arguments are meant for, the arguments left, what comes before them, and what they do."""
    app = tyro.extras.SubcommandApp()
    _known(arguments[0], [*COMMANDS, *GROUPS], "vernier", "command")
    if arguments[0] in GROUPS and len(arguments) > 1:
        name = arguments[0]
        actions = import_module(f"vernier.cli.{name}").COMMANDS
        _known(arguments[1], list(actions), f"vernier {name}", "action")
        for action, function in _listed(actions, arguments[1]).items():
            app.command(name=action)(function)
        return app, arguments[1:], f"vernier {name}", GROUPS[name]
    everything = {**COMMANDS, **{name: _group(name) for name in GROUPS}}
    for name, function in _listed(everything, arguments[0]).items():
        app.command(name=name)(function)
    return app, arguments, "vernier", "Train, evaluate and measure vision models."


def _listed(commands: dict[str, Callable[..., int]], given: str) -> dict[str, Callable[..., int]]:
    """The commands; where only their list is asked for, each with the first sentence of what it says of itself."""
    if given not in ("-h", "--help"):
        return commands

    def brief(function: Callable[..., int]) -> Callable[..., int]:
        def listed() -> int:
            return EXIT_DONE

        listed.__doc__ = (function.__doc__ or "").strip().splitlines()[0]
        return listed

    return {name: brief(function) for name, function in commands.items()}


def _colours() -> bool:
    """Whether help and usage errors may have colours: both streams are a terminal, and NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR") and sys.stdout.isatty() and sys.stderr.isatty()


def _known(given: str, names: list[str], within: str, what: str) -> None:
    if not given.startswith("-") and given not in names:
        raise ConfigError(
            f"{within} has no {what} {given!r}. {did_you_mean(given, names)} {within} --help explains all."
        )


def _group(name: str) -> Callable[[], int]:
    """What a group says when no action is given."""

    def ask() -> int:
        actions = ", ".join(import_module(f"vernier.cli.{name}").COMMANDS)
        raise ConfigError(f"Which action? vernier {name} {actions}; vernier {name} --help explains.")

    ask.__doc__ = f"{GROUPS[name]} (`vernier {name} --help` lists the actions.)"
    return ask


def main(arguments: list[str] | None = None) -> int:
    """Run one command and turn errors meant for people into a message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        sys.stdout.write(WELCOME)
        return EXIT_DONE
    if arguments in (["--version"], ["-V"]):
        from vernier import __version__

        sys.stdout.write(f"vernier {__version__}\n")
        return EXIT_DONE
    # Threads that spin for long while they wait make training many times slower when anything else uses the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    COMMAND_LINE[:] = arguments
    tyro._experimental_options["ansi_codes"] = _colours()
    try:
        app, rest, prog, about = _app(arguments)
        code: int = app.cli(
            args=rest,
            prog=prog,
            description=about,
            config=(OmitArgPrefixes,),
            sort_subcommands=False,
        )
        return code
    except ConfigError as error:
        record_failure(str(error))
        say(f"vernier: {error}")
        return EXIT_USAGE
    except RunFailed as error:
        record_failure(str(error))
        say(f"vernier: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("vernier: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
    except OSError as error:
        if not (refused := of_the_machine(error)):
            raise
        record_failure(refused)
        say(f"vernier: {refused}.")
        return EXIT_FAILED
