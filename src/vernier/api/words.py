"""Messages in the words of Python: `epochs=3` where the command line has `--epochs 3`.

Everything below this package speaks to a person at a terminal. `python_words` translates one message; every public
function is wrapped in `errors_in_python_words`, which does so for errors and leaves Vernier's own frames out of the
traceback. Commands that a message quotes stay commands.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from vernier.addresses import redact
from vernier.errors import ConfigError, NoSuchSplit, RunFailed

P = ParamSpec("P")
T = TypeVar("T")
_COMMAND = re.compile(r"`?\bvernier (?:[a-z]+)\b(?: [^\s.;,)`]+(?:\.[^\s.;,)`]+)*)*`?")
_SET = re.compile(r"--set ([\w.]+)=(\[[^\]]*\]|[^\s,;:)]*[^\s,;:.)])")
_PAIRS = re.compile(r"--(columns|units) ((?:\w+=[^\s,;]+)(?:,\w+=[^\s,;]+)*)")
_SWITCHED_OFF = re.compile(r"--no-([a-z][a-z-]*)")
_WITH_VALUE = re.compile(
    r"--([a-z][a-z-]*) ("
    r"[A-Z][A-Z_]*(?:[|:][A-Z]+)?(?![a-z])"  # FILE, N, A:B
    r"|-?\d[\w.%-]*(?<!\.)"
    r"|(?:/|~|\./)[^\s,;]*[^\s,;:.]"  # a path
    r"|(?:never|auto|best|latest|fp32|tf32|bf16|fp16|eager|compile|trace|cpu|cuda|hpu|mps|xpu|onnx|safetensors"
    r"|torch-export|torchvision|onnxruntime|openvino|torch)\b"
    r"|'[^']*')"
)
_SWITCHES = (
    "allow-slow allow-split classes-by-number deterministic different-work ema int8 normalised-input overwrite "
    "reset-head single-runs train-only"
)
_SWITCH = re.compile(rf"--({_SWITCHES.replace(' ', '|')})\b")
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_PLACEHOLDER = re.compile(r"[A-Z_|:]+|-?\d+(?:\.\d+)?|'.*'")
_SAME_COMMAND = {"the same command resumes": "the same call resumes", "run the same command": "repeat the same call"}


def python_words(message: str) -> str:
    """A message of the command line in the words of Python; commands in it are left as they are."""
    parts, end = [], 0
    for command in _COMMAND.finditer(message):
        parts += [_translated(message[end : command.start()]), command.group()]
        end = command.end()
    return "".join([*parts, _translated(message[end:])])


def _translated(text: str) -> str:
    for old, new in _SAME_COMMAND.items():
        text = text.replace(old, new)
    text = _SET.sub(lambda match: f'settings={{"{match[1]}": {_value(match[2])}}}', text)
    text = text.replace("} settings={", ", ")
    text = _PAIRS.sub(lambda match: f"{match[1]}={{{_pairs(match[2])}}}", text)
    text = _SWITCHED_OFF.sub(lambda match: f"{_name(match[1])}=False", text)
    text = _WITH_VALUE.sub(lambda match: f"{_name(match[1])}={_value(match[2])}", text)
    text = _SWITCH.sub(lambda match: f"{_name(match[1])}=True", text)
    return _FLAG.sub(lambda match: _name(match[1]), text)


def _name(flag: str) -> str:
    return "settings" if flag == "set" else flag.replace("-", "_")


def _pairs(text: str) -> str:
    return ", ".join(f'"{name}": {_value(value)}' for name, _, value in (p.partition("=") for p in text.split(",")))


def _value(text: str) -> str:
    """A value as Python writes it: numbers, lists and placeholders such as FILE as they are, other texts in quotes."""
    if text.lower() in ("true", "false", "none"):
        return text.capitalize()
    return text if _PLACEHOLDER.fullmatch(text) or text.startswith(("[", ".")) else f'"{text}"'


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, ended a training or a benchmark after what was done so far was saved.

    `path` is its run directory; None where there was nothing to save. The same call resumes a training.
    """

    def __init__(self, message: str, path: Path | None) -> None:
        super().__init__(message)
        self.path = path

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, because no line of code is to blame."""
        return [str(self)]


def errors_in_python_words(function: Callable[P, T]) -> Callable[P, T]:
    """The function with its ConfigErrors and RunFailed in the words of Python, raised where it was called."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        __tracebackhide__ = True  # of notebooks and pytest
        try:
            return function(*args, **options)
        except (ConfigError, RunFailed) as error:
            kind = NoSuchSplit if isinstance(error, NoSuchSplit) else ConfigError
            raise (kind if isinstance(error, ConfigError) else RunFailed)(redact(python_words(str(error)))) from None

    return call
