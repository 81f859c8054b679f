"""The command line: one function per command, which reads its flags, calls the code that does the work, and prints.

`COMMANDS` lists the commands; a command with actions (`vernier data make`) is a group with its own module. `info`,
`model` and `report` hold the commands, `flags`, `output` and `launching` what they share, `usage` how command lines are
read and refused. May import everything, and nothing imports it. torch is imported only inside the functions that need
it, so that `--help` is fast.
"""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from vernier import __version__
from vernier.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_STOPPED,
    EXIT_USAGE,
    ConfigError,
    RunFailed,
    advice,
    did_you_mean,
    environment_error,
)
from vernier.report.live.terminal import OUTPUT_NAME, discard_results
from vernier.signals import StopRequested, announce_stop, pending_stop

from .usage.commands import Commands
from .usage.help_texts import examples_of, examples_text, first_line, listing

WELCOME = """\
Vernier trains, evaluates, benchmarks and profiles vision models, and reports what it measured.

  vernier train          train on the built-in data set of rendered shapes, about a minute on two cores
  vernier recipes        list everything that can be trained
  vernier doctor         show what this machine can do

vernier --help lists every command; vernier COMMAND --help explains one.
"""

COMMANDS = Commands(
    {
        "train": (
            "vernier.cli.model.train:train",
            "Train a model with a recipe. Without a recipe: on built-in data, about a minute on two cores.",
        ),
        "finetune": (
            "vernier.cli.model.finetune:finetune",
            "Fine-tune a classifier or a detector on your own photographs, without setting anything.",
        ),
        "eval": (
            "vernier.cli.model.evaluate:evaluate",
            "Evaluate a run (finished, running or interrupted), a checkpoint, an exported file or anybody's weights.",
        ),
        "predict": (
            "vernier.cli.model.predict:predict",
            "Apply a trained model to images: the five most likely classes, or objects with boxes.",
        ),
        "export": (
            "vernier.cli.model.export:export",
            "Write a model to one file for use elsewhere, and model_card.md beside it; nothing is overwritten.",
        ),
        "profile": (
            "vernier.cli.model.profile:profile",
            "Profile steps of training, or of inference: kernel table, trace, memory, and where the time goes.",
        ),
        "tune": (
            "vernier.cli.model.tune:tune",
            "Find the fastest settings of this machine for a recipe, and write them to a file for --machine.",
        ),
        "plan": (
            "vernier.cli.info.plan:plan",
            "Predict throughput, time and energy of a recipe on many devices, from the measured speed of one.",
        ),
        "report": (
            "vernier.cli.report.page:report",
            "Make one self-contained HTML page about runs, which needs no network and can be sent to others.",
        ),
        "compare": (
            "vernier.cli.report.compare:compare",
            "Compare the speed of two runs: is B faster or slower than A, how certain is that, and what else differs?",
        ),
        "convert": (
            "vernier.cli.report.convert:convert",
            "Convert a run's log to the format of another tool; nothing is overwritten.",
        ),
        "recipes": (
            "vernier.cli.info.catalogue:recipes",
            "List the built-in recipes, or print one as a TOML file to edit.",
        ),
        "models": (
            "vernier.cli.info.catalogue:models",
            "List the networks with their parameters and their cost per image, or show one.",
        ),
        "doctor": (
            "vernier.cli.info.doctor:doctor",
            "Show what this machine can do: devices, precisions, modes, speed, and how to install missing packages.",
        ),
        "completion": (
            "vernier.cli.info.completion:completion",
            "Print a completion script for your shell. It works in shells started afterwards.",
        ),
    }
)
GROUPS = {
    "bench": "Measure training, inference, scaling and loading, with intervals.",
    "data": "Make, prepare, verify, inspect or fetch data sets.",
    "runs": "List runs with result, state and size, or free the disk space they take.",
    "study": "Device variability: design a study, measure every device, analyse, learn a baseline, check a machine.",
}
"""Commands with actions; the actions of `data` are in `vernier.cli.data.COMMANDS`."""
_MODULES = {"runs": "vernier.cli.report.runs"}
"""Where the actions of a group are, if not in a module of its name."""
DEFAULT_ACTIONS = {"runs": "list"}
"""What a group does where its first argument is no action."""

SECTIONS = {
    "Train": ("train", "finetune", "eval", "predict", "export"),
    "Measure": ("bench", "tune", "profile", "plan", "study"),
    "Look": ("runs", "report", "compare", "convert", "recipes", "models", "doctor"),
    "Data": ("data",),
    "Shell": ("completion",),
}
"""The order of `vernier --help`: that of the work."""

INTERNAL = ("arm",)
"""Actions that Vernier starts itself; no help lists them."""

EXAMPLES = [
    "vernier train                                  # the built-in data set, about a minute on two cores",
    "vernier finetune photos                        # your own images: one folder per class, or boxes",
    "vernier runs                                   # what was trained so far, with its result",
    "vernier report runs                            # one page about all runs",
]
HELP = ("-h", "--help")


def actions_of(group: str) -> dict[str, Callable[..., int]]:
    """Import a group's actions."""
    actions: dict[str, Callable[..., int]] = import_module(_MODULES.get(group, f"vernier.cli.{group}")).COMMANDS
    return actions


def help_text(group: str | None = None) -> str:
    """What `vernier --help`, or `vernier GROUP --help`, prints."""
    if group is not None:
        lines = {name: first_line(function) for name, function in actions_of(group).items() if name not in INTERNAL}
        closing = [f"vernier {group} ACTION --help explains one."]
        default = DEFAULT_ACTIONS.get(group)
        if default is not None:
            closing.insert(0, f"Without an action: vernier {group} {default}.")
        usage = f"vernier {group} [-h] {'[ACTION]' if default else 'ACTION'} ..."
        return listing(usage, GROUPS[group], {"Actions": lines}, closing)
    about = {**COMMANDS.about, **GROUPS}
    sections = {title: {name: about[name] for name in names} for title, names in SECTIONS.items()}
    closing = ["vernier COMMAND --help explains one.", examples_text(EXAMPLES).rstrip("\n")]
    return listing(
        "vernier [-h] [--version] COMMAND ...", "Train, evaluate and measure vision models.", sections, closing
    )


def run(function: Callable[..., int], arguments: list[str], prog: str) -> int:
    """Run a command with what was typed after its name, or print its help. Raises ConfigError for what does not fit."""
    from .usage.aliases import in_typed_words, with_own_names
    from .usage.refusals import refuse
    from .usage.tyro_private import call, flags_of

    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word in HELP for word in options):
        with suppress(SystemExit):
            call(function, ["--help"], prog, lambda _: None)
        sys.stdout.write(examples_text(examples_of(function)))
        return EXIT_DONE
    own = list(flags_of(function))
    names = {name for flag in own for name in flag.names}
    words = with_own_names(arguments, names, {name for flag in own if flag.switch for name in flag.names})
    try:
        return call(function, words, prog, lambda refusal: refuse(refusal, function, words, prog))
    except ConfigError as error:
        raise ConfigError(in_typed_words(str(error), arguments, names)) from error


def _dispatch(arguments: list[str]) -> int:
    """Find the command and run it."""
    name, *rest = arguments
    _check_name(name, [*COMMANDS, *GROUPS], "vernier", "command")
    if name not in GROUPS:
        return run(COMMANDS[name], rest, f"vernier {name}")
    actions = actions_of(name)
    shown = [action for action in actions if action not in INTERNAL]
    if name in DEFAULT_ACTIONS and not (rest and rest[0] in (*actions, *HELP, "help")):
        return run(actions[DEFAULT_ACTIONS[name]], rest, f"vernier {name}")
    if not rest:
        raise ConfigError(f"Which action? vernier {name} {', '.join(shown)}; vernier {name} --help explains.")
    if rest[0] in (*HELP, "help"):
        sys.stdout.write(help_text(name))
        return EXIT_DONE
    if rest[0] not in actions:
        _check_name(rest[0], shown, f"vernier {name}", "action")
    return run(actions[rest[0]], rest[1:], f"vernier {name} {rest[0]}")


def _check_name(argument: str, names: list[str], prog: str, kind: str) -> None:
    if argument.startswith("-"):
        raise ConfigError(f"{prog} needs its {kind} before {argument}. {prog} --help lists them.")
    if argument not in names:
        raise ConfigError(
            f"{prog} has no {kind} {argument!r}. {did_you_mean(argument, names)} {prog} --help lists them."
        )


def main(arguments: list[str] | None = None) -> int:
    """Run one command; turn errors meant for people into a message and an exit code."""
    typed = sys.argv[1:] if arguments is None else arguments
    words = [*typed[1:], "--help"] if typed[:1] == ["help"] else typed
    if words in ([], ["--version"], ["-V"], ["version"]):
        sys.stdout.write(f"vernier {__version__}\n" if words else WELCOME)
        return EXIT_DONE
    try:
        if words[0] in HELP:
            sys.stdout.write(help_text())
            sys.stdout.flush()
            return EXIT_DONE
        return _run_command(words, own_process=arguments is None)
    except (ConfigError, RunFailed) as error:
        return _fail(str(error), EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)
    except StopRequested as request:
        return _stop(str(request))
    except KeyboardInterrupt:
        from .output import say

        say("vernier: interrupted")
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
            message = f"{message}. {advice(error)}".rstrip(". ")
        return _fail(f"{message}.", EXIT_FAILED)


def _run_command(words: list[str], *, own_process: bool) -> int:
    """Prepare the process for a command, and carry it out."""
    from vernier.addresses import hide_credentials_in_tracebacks, take_credentials
    from vernier.api.starting import limit_spinning
    from vernier.config import RenamedSetting

    from .launching import COMMAND_LINE
    from .output import set_quiet
    from .usage.tyro_private import use_colours

    if own_process:
        hide_credentials_in_tracebacks()
    limit_spinning()
    set_quiet(False)
    use_colours(not os.environ.get("NO_COLOR") and sys.stdout.isatty() and sys.stderr.isatty())
    with warnings.catch_warnings():
        warnings.simplefilter("always", RenamedSetting)
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        COMMAND_LINE[:] = take_credentials(words)
        code = _dispatch(list(COMMAND_LINE))
        sys.stdout.flush()
        return code


def _stop(signal_name: str) -> int:
    """Say which signal came before the first step; one process of several does."""
    from vernier.engine.processes.launch import topology

    if topology().first:
        announce_stop(signal_name)
    return EXIT_STOPPED


def _fail(message: str, code: int) -> int:
    """Print an error, and record it for the launcher of several processes."""
    from vernier.addresses import redact
    from vernier.engine.processes.launch import record_failure

    from .output import say

    if name := pending_stop():
        return _stop(name)
    record_failure(redact(message))
    say(f"vernier: {message}")
    return code


_show_python_warning = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *details: Any) -> None:
    """A note about a renamed setting in one line; other warnings as Python shows them."""
    from vernier.config import RenamedSetting

    from .output import say

    if issubclass(category, RenamedSetting):
        say(f"vernier: {message}")
    else:
        _show_python_warning(message, category, *details)
