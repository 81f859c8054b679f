"""Code of users that settings name: `mynets:Net`, `train.py:Net`, or either with arguments, `mynets:Net(width=32)`.

A reference is text, so it crosses to other processes, is recorded, and means the same when the run is resumed. Objects
of a Python session get a reference, too: that of the function or class if other processes can import it, otherwise one
that is known in this process only (`python:Net#1`). What the objects must be able to do is up to those that load them.
Imports no torch.
"""

import ast
import hashlib
import inspect
import re
import sys
import traceback
from functools import partial
from importlib import import_module, metadata, util
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import ConfigError, Refusal, RunFailed, did_you_mean
from .frozen import frozen
from .plugins import load_plugin
from .references import given

_REFERENCE = re.compile(
    r"(?P<module>[^\s:()#][^:()#]*):(?P<name>[A-Za-z_][\w.]*)(?P<count>#\d+)?(?P<arguments>\(.*\))?", re.DOTALL
)
_SESSION = "python"
"""The module of objects that only this process knows."""
_objects: dict[str, Any] = {}


@frozen
class OwnCode:
    """Where the code of a reference comes from, as runs record it."""

    setting: str
    reference: str
    file: str = ""
    """Empty if the object was made in a session without a file."""
    sha256: str = ""
    """Of that file; of the source of a class or function of a notebook."""
    package: str = ""
    """The installed distribution that contains it, and its version."""


def is_own(text: str) -> bool:
    """Whether the value of a setting names code of the user. Addresses such as s3://bucket do not."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def is_of_this_process(text: str) -> bool:
    """Whether a reference means an object that other processes cannot have."""
    return text.startswith(f"{_SESSION}:")


def load_own(setting: str, text: str) -> Any:
    """The object that a reference names; with arguments, a function or class that has them bound already.

    Raises ConfigError if there is no such module or name, or if the module raises while it is imported: with the line
    of the user's file.
    """
    named = _parsed(setting, text)
    if named["module"] == _SESSION:
        if (key := text.strip()) not in _objects:
            raise ConfigError(
                f"{given(setting, text)}: only the Python session that made this object has it. Pass it again there, "
                "in one process, or define it in a file, which is named as file.py:name."
            )
        return _objects[key]
    target: Any = _import(setting, text, named["module"])
    for part in named["name"].split("."):
        if not hasattr(target, part):
            known = [name for name in vars(target) if not name.startswith("_")] if hasattr(target, "__dict__") else []
            raise ConfigError(f"{given(setting, text)}: {named['module']} has no {part}. {did_you_mean(part, known)}")
        target = getattr(target, part)
    positional, keywords = _arguments(setting, text, named["arguments"])
    return partial(target, *positional, **keywords) if positional or keywords else target


def refer_to(value: Any, name: str = "") -> str:
    """The reference to an object: where other processes can import it from, else one that holds in this process."""
    module, own_name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if own_name and module and "<" not in own_name:
        where = module
        if module == "__main__":
            # A script is imported again by its path; in a notebook or a shell there is no file to import.
            where = str(getattr(sys.modules["__main__"], "__file__", "") or "")
        try:
            if where and attrgetter(own_name)(sys.modules[module]) is value:
                return f"{where}:{own_name}"
        except (AttributeError, KeyError):
            pass  # a class inside of a function, or a name that means something else by now
    label = name or own_name.rpartition(".")[2].strip("<>") or type(value).__name__
    key = next((key for key, known in _objects.items() if known is value), f"{_SESSION}:{label}#{len(_objects) + 1}")
    _objects[key] = value
    return key


class OwnPart:
    """Code of a user as a run calls it, by its reference or by the name of an entry point in `group`.

    A class is made, with the arguments of the reference; not with `instantiate=False`. Raises ConfigError.
    """

    def __init__(
        self, setting: str, text: str, group: str = "", default: str = "", *, instantiate: bool = True
    ) -> None:
        self.setting, self.text = setting, text
        self.passing: tuple[type[Exception], ...] = (Refusal,)
        """Errors of its code that `run` lets pass."""
        self._target = load_own(setting, text) if is_own(text) else load_plugin(group, setting, text, default)
        self.value = self._target
        if instantiate and inspect.isclass(_defined(self._target)):
            try:
                self.value = self._target()
            except Exception as error:  # a user's class may raise anything
                raise blamed(setting, text, error) from error

    def __call__(self, *arguments: Any) -> Any:
        return self.run(self.value, *arguments)

    def run(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        """Call a function of it. What it raises becomes RunFailed with the user's line, but for `passing`."""
        try:
            return function(*arguments, **keywords)
        except self.passing:
            raise
        except Exception as error:
            raise RunFailed(blamed(self.setting, self.text, error).message) from error

    def wrong(self, what: str) -> RunFailed:
        """The error about something that it returned."""
        return RunFailed(f"{given(self.setting, self.text)}{defined_at(self.value)} {what}.")

    def describe(self) -> OwnCode:
        """What a run records about it."""
        described = _described(self._target)
        try:
            file = Path(inspect.getsourcefile(described) or "")
            of_file = file.is_file()
            source = file.read_bytes() if of_file else inspect.getsource(described).encode()
        except (OSError, TypeError):  # made in C, or in a notebook
            file, of_file, source = Path(), False, b""
        return OwnCode(
            setting=self.setting,
            reference=self.text,
            file=str(file.resolve()) if of_file else "",
            sha256=hashlib.sha256(source).hexdigest() if source else "",
            package=_package_of(getattr(described, "__module__", "") or ""),
        )


def _defined(target: Any) -> Any:
    while isinstance(target, partial):
        target = target.func
    return target


def _described(target: Any) -> Any:
    """What the source of an object is the source of: itself, or its class."""
    target = _defined(target)
    return target if inspect.isclass(target) or inspect.isroutine(target) or inspect.ismodule(target) else type(target)


def defined_at(target: Any) -> str:
    """File and line of the definition of an object: ` (mylosses.py, line 12)`; empty if it has none."""
    described = _described(target)
    try:
        return f" ({_place(inspect.getfile(described), inspect.getsourcelines(described)[1])})"
    except (OSError, TypeError):  # made in C, or in a session without a file
        return ""


def _place(file: str, line: int | None) -> str:
    return f"{Path(file).name}, line {line}"


def line_of(error: BaseException) -> str:
    """The user's file and line that raised an error, such as `mynets.py, line 12`; empty if all of it is other code."""
    own = Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not path.is_relative_to(own) and "site-packages" not in path.parts and not _of_python(path):
            return _place(frame.filename, frame.lineno)
    return ""


def blamed(setting: str, text: str, error: BaseException) -> ConfigError:
    """The error of a user's code as one sentence that names the file and line."""
    if isinstance(error, ConfigError):
        return error
    return ConfigError(f"{given(setting, text)} {raised(error)}")


def raised(error: BaseException) -> str:
    """The end of a sentence about the code that raised an error."""
    line = line_of(error)
    first = next(iter(str(error).splitlines()), "")
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"raised {what.rstrip('.')}{f' ({line})' if line else ''}."


def arguments_of(setting: str, text: str) -> dict[str, object]:
    """The arguments that a reference gives by name. Raises ConfigError for others."""
    positional, keywords = _arguments(setting, text, _parsed(setting, text)["arguments"])
    if positional:
        raise ConfigError(
            f"{given(setting, text)}: give the arguments by name, as in {text.partition('(')[0]}(depth=3)."
        )
    return keywords


def _parsed(setting: str, text: str) -> dict[str, str]:
    match = _REFERENCE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{given(setting, text)} is not a reference. Write module:name or file.py:name(argument=1).")
    return {key: value or "" for key, value in match.groupdict().items()}


def _import(setting: str, text: str, module: str) -> ModuleType:
    # Modules are found in the current folder, as with `python -m`, and in the folder of a file. At the end of the path,
    # so that a user's random.py does not shadow the library's; for good, since code may import more when it runs.
    of_file = module.endswith(".py")
    folders = [Path.cwd(), *([Path(module).expanduser().resolve().parent] if of_file else [])]
    sys.path += [folder for folder in dict.fromkeys(map(str, folders)) if folder not in sys.path]
    try:
        return _import_file(module) if of_file else import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            raise ConfigError(
                f"{given(setting, text)}: there is no module {module} in this folder, nor is it installed. A file is "
                "named with its ending: file.py:name."
            ) from None
        raise blamed(setting, text, error) from error
    except FileNotFoundError:
        raise ConfigError(f"{given(setting, text)}: there is no file {module}.") from None
    except Exception as error:  # a module may raise anything while it is imported
        raise blamed(setting, text, error) from error


def _import_file(file: str) -> ModuleType:
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(file)
    # By content, too: a session that edits the file and names it again gets what the file says then.
    content = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()
    name = f"vernier_own_{path.stem}_{content[:8]}"
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main  # a script that names itself is not run a second time
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _arguments(setting: str, text: str, arguments: str) -> tuple[list[object], dict[str, object]]:
    """Arguments are literals: a setting is not a program."""
    if not arguments:
        return [], {}
    try:
        call = ast.parse(f"f{arguments}", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [ast.literal_eval(value) for value in call.args]
        return positional, {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise ConfigError(
            f"{given(setting, text)}: arguments are numbers, texts in quotes, true or false as in Python, and lists or "
            'tuples of them: mynets:Net(width=32, kind="small").'
        ) from None


def _of_python(path: Path) -> bool:
    return path.is_relative_to(Path(inspect.__file__).parent) or str(path).startswith("<")


def _package_of(module: str) -> str:
    name = next(iter(metadata.packages_distributions().get(module.partition(".")[0], ())), "")
    return f"{name} {metadata.version(name)}" if name else ""
