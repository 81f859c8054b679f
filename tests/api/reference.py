"""docs/reference/python.md: every public function and class, made from signatures and docstrings by `make pages`."""

import inspect
import re
from typing import Any

import vernier
from tests.conftest import REPO
from vernier.api.functions import _options_in_python
from vernier.api.reports import report
from vernier.requests.declaring import Request, default_text, description_of, summary_of

FILE = REPO / "docs" / "reference" / "python.md"
HEADING = """\
# Python reference

<!-- Made by `make pages` from the source: edit the requests and docstrings there, not this page. -->

Every public name of `import vernier as v`. [Python](../python.md) shows how they are used. A function that is also a
command has the options of the command, explained on the page [All commands](commands.md).
"""
LINE = 118


def page() -> str:
    """Every public name in the order of `vernier.__all__`."""
    names = [name for name in vernier.__all__ if not name.startswith("_")]
    entries = (_entry(name, report if name == "report" else getattr(vernier, name)) for name in names)
    return "\n".join([HEADING, *entries]).rstrip() + "\n"


def _entry(name: str, thing: Any) -> str:
    cls = getattr(thing, "request", None)
    if cls is not None:
        paragraphs = "\n\n".join([summary_of(cls), *description_of(cls)])
        return f"## `{name}`\n\n{_code(name, thing)}\n{paragraphs}\n{_options(cls)}"
    if not inspect.isclass(thing):
        return f"## `{name}`\n\n{_code(name, thing)}\n{_prose(thing)}\n"
    base = "" if not issubclass(thing, BaseException) else f" A kind of {thing.__mro__[-4].__name__}."
    return f"## `{name}`\n\n{_prose(thing)}{base}\n\n{_members(thing)}".rstrip() + "\n"


def _code(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parts = [_parameter(parameter) for parameter in signature.parameters.values() if parameter.name != "self"]
    first_keyword = next((i for i, p in enumerate(signature.parameters.values()) if p.kind is p.KEYWORD_ONLY), None)
    if first_keyword is not None:
        parts.insert(first_keyword, "*")
    joined = f"{name}({', '.join(parts)})"
    return f"```text\n{joined if len(joined) <= LINE else _broken(name, parts)}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _broken(name: str, parts: list[str]) -> str:
    lines, line = [], "    "
    for part in parts:
        if len(line) + len(part) > LINE:
            lines.append(line.rstrip())
            line = "    "
        line += f"{part}, "
    return "\n".join([f"{name}(", *lines, line.rstrip(" ,"), ")"])


def _prose(thing: Any) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(thing) or "")


def _members(cls: Any) -> str:
    rows = []
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            rows.append(f"- `{name}`: {_prose(member)}")
        elif inspect.isfunction(member):
            parameters = [_parameter(p) for p in inspect.signature(member).parameters.values() if p.name != "self"]
            rows.append(f"- `{name}({', '.join(parameters)})`: {_prose(member)}")
    return "\n".join(row.replace("\n\n", " ") for row in rows)


def _options(cls: type[Request]) -> str:
    """What the arguments mean: those of a command are explained on its page."""
    if cls.command:
        return f"\nOptions: [vernier {cls.command}](commands.md#vernier-{cls.command.replace(' ', '-')}).\n"
    options = _options_in_python(cls)
    rows = [f"| `{each.name}` | {_cell(each.help)} | {_cell(default_text(each))} |" for each in options]
    return "\n".join(["\n| option | meaning | default |", "|---|---|---|", *rows, ""]) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
