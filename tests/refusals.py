"""What a refusal carries, for tests that check its data and not its words."""

from vernier.cli import _find_command
from vernier.cli.output import Terminal
from vernier.cli.parser import parse
from vernier.errors import ConfigError, Refusal
from vernier.references import shown
from vernier.requests.registry import find, function_of


def names_given(error: Refusal) -> str:
    """The options and settings that were given and cannot be, in alphabetical order."""
    return " ".join(sorted(error.given))


def what_works(error: Refusal) -> str:
    """What would work instead: `NAME=VALUE`, the name alone if there is no value, the words of a command."""
    texts = []
    for name, value in error.works:
        if isinstance(value, dict):  # the arguments and options of a command
            texts.append(name)
        else:
            texts.append(name if value is None else f"{name}={shown(value)}")
    return " ".join(texts)


def refusal_of(*words: str) -> Refusal:
    """The error with which a command line ends that is wrong; one that works is a mistake of the test."""
    try:
        command, rest = _find_command(list(words))
        cls = find(command)
        assert cls is not None
        request, shell = parse(cls, rest, f"vernier {command}")
        function_of(command)(request, Terminal(shell))
    except Refusal as error:
        return error
    raise AssertionError(f"vernier {' '.join(words)} was not refused")


def config_error_of(*words: str) -> ConfigError:
    """As `refusal_of`, for what ends with exit code 2."""
    error = refusal_of(*words)
    assert isinstance(error, ConfigError), error
    return error
