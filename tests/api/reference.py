"""The reference at the end of docs/python.md, made from signatures and docstrings.

.venv/bin/python -m tests.api.reference    # writes it
"""

import inspect
import re
from typing import Any

import vernier
from tests.api.page import PAGE
from vernier.api.display import report
from vernier.api.options import FinetuneOptions, TrainOptions
from vernier.api.words import python_words
from vernier.cli.model.finetune import finetune as finetune_command
from vernier.cli.model.train import train as train_command

WITH_OPTIONS = {"train": (train_command, TrainOptions), "finetune": (finetune_command, FinetuneOptions)}
"""Functions whose options are the flags of a command, with that command."""
HEADING = "## Reference\n\nMade from the source by `python -m tests.api.reference`.\n"
LINE = 118


def reference() -> str:
    """Every public name in the order of `vernier.__all__`."""
    names = [name for name in vernier.__all__ if not name.startswith("_")]
    return "\n".join(
        [HEADING, *(_entry(name, report if name == "report" else getattr(vernier, name)) for name in names)]
    )


def _entry(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        options = _options(*WITH_OPTIONS[name]) if name in WITH_OPTIONS else ""
        return f"### `{name}`\n\n{_code(name, thing)}\n{_prose(thing)}\n{options}"
    base = "" if not issubclass(thing, BaseException) else f" A kind of {thing.__mro__[1].__name__}."
    return f"### `{name}`\n\n{_prose(thing)}{base}\n\n{_members(thing)}".rstrip() + "\n"


def _code(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    if name in WITH_OPTIONS:
        argument = next(iter(signature.parameters.values()))
        return f"```text\n{name}({_parameter(argument)}, **options)\n```\n"
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


OWN = {
    "freeze": "Do not train layers whose names start with this, such as `layer1`, or with one of several; `backbone` "
    "trains the classifier only.",
    "machine": "Settings of the machine from a file that `tune` wrote, or any .toml file with a table [machine]. Other "
    "options win over it.",
    "track": "Also log to Weights & Biases (`wandb`) or `mlflow`.",
    "settings": 'Any setting by its name: `{"optim.lr": 0.05}`.',
    "quiet": "Print warnings only.",
}
"""Options whose flags are explained elsewhere, or that are no flags."""


def _options(command: Any, names: type) -> str:
    """The keyword arguments of a function with the help of its command's flags."""
    section = (inspect.getdoc(command) or "").partition("Args:\n")[2].partition("\n\n")[0]
    helps = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, flags=re.MULTILINE))
    rows = []
    for name in names.__annotations__:
        text = " ".join(python_words(OWN.get(name) or helps[name]).split()).replace("|", r"\|")
        rows.append(f"| `{name}` | {text} |")
    return "\n".join(["\n| option | meaning |", "|---|---|", *rows, ""])


def with_reference(text: str) -> str:
    """The page with its reference as the source has it now."""
    return text.partition("## Reference\n")[0] + reference().rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
