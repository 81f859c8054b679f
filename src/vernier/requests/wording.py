"""Names of options and settings in messages: the part that the command line and Python share.

A setting that an option of the request set is named by that option, one that was given as NAME=VALUE as such, and any
other one, which a recipe or a file has, as a key of that file.
"""

from typing import Any

from vernier.config import described_settings, setting_name
from vernier.references import Reference, plain_word, shown, worded

from .declaring import Option, Request, option_of, options_of

PROGRAM = "vernier"


class Words:
    """How an edge words a message about a request. `word` words a text; the methods are for one reference each."""

    def __init__(self, cls: type[Request] | None, request: Request | None = None) -> None:
        self.cls, self.request = cls, request

    def word(self, text: str) -> str:
        """A message with its references worded."""
        return worded(text, self.reference)

    def reference(self, reference: Reference) -> str:
        if reference.role == "command":
            return self.command(reference)
        option = None if self.cls is None else option_of(self.cls, reference.name)
        # A value from a recipe file must not be called a flag that nobody typed.
        if option is not None and not self._is_from_elsewhere(reference, option):
            return self.option(option, reference)
        if not reference.has_value:
            return reference.name
        if reference.role == "use" or self._is_assigned(reference.name):
            return self.setting(reference) if self._takes_setting(reference.name) else plain_word(reference)
        return plain_word(reference)

    def _is_from_elsewhere(self, reference: Reference, option: Option) -> bool:
        """Whether a setting that is named as given has its value from a recipe or file, not from the option."""
        if reference.role == "use" or not reference.has_value or self.request is None:
            return False
        return option.name != reference.name and not self.request.gives(option.name)

    def _is_assigned(self, name: str) -> bool:
        assignments = getattr(self.request, "settings", ())
        return any(setting_name(each.partition("=")[0].strip()) == setting_name(name) for each in assignments)

    def _takes_setting(self, name: str) -> bool:
        """Whether NAME=VALUE can be given here: `out` may be an option of another command, and is no setting."""
        takes_settings = self.cls is not None and option_of(self.cls, "settings") is not None
        return takes_settings and name.removeprefix("recipe.") in described_settings()

    # ------------------------------------------------------------------------------------------------- by the edges

    def option(self, option: Option, reference: Reference) -> str:
        raise NotImplementedError

    def setting(self, reference: Reference) -> str:
        raise NotImplementedError

    def command(self, reference: Reference) -> str:
        """A command to type, for both edges."""
        # Here, not at the top: finding a command imports its request, which most messages do not need.
        from .registry import find

        options = dict(reference.value)
        arguments, words = options.pop("arguments"), reference.name.split(".")
        cls = find(" ".join(words))
        parts = [PROGRAM, *words, *arguments]
        for name, value in options.items():
            option = None if cls is None else option_of(cls, name)
            parts += _flag_words(option, value) if option is not None else ["--set", f"{name}={shown(value)}"]
        return " ".join(parts)


def _flag_words(option: Option, value: Any) -> list[str]:
    """An option with its value as words of a command line."""
    if option.switch:
        return [option.flag if value else option.flag.replace("--", "--no-", 1)]
    if option.repeats or option.form.kind == "settings":
        return [word for item in value for word in (option.flag if option.name != "settings" else "--set", str(item))]
    return [option.flag, *(map(str, value) if option.form.count > 1 else [option.text(value)])]


def command_line(request: Request) -> list[str]:
    """The words that make this request again, without the program: its command, and what is not at its default."""
    words = request.command.split()
    for option in options_of(type(request)):
        value = getattr(request, option.name)
        # Left out, so that the line stays short and follows later defaults, as what was typed did.
        if option.is_default(value):
            continue
        if option.positional:
            words += value if isinstance(value, tuple) else [option.text(value)]
        else:
            words += _flag_words(option, value)
    return words
