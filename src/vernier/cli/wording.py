"""Messages in the words of the command line: flags as they were typed, and `--set` for settings without one."""

import shlex

from vernier.references import Reference, shown
from vernier.requests.declaring import Option, Request
from vernier.requests.wording import Words


class ShellWords(Words):
    """Words for one command. `typed` has the flags that were typed under another name, by option."""

    def __init__(
        self, cls: type[Request] | None, request: Request | None = None, typed: dict[str, str] | None = None
    ) -> None:
        super().__init__(cls, request)
        self.typed = typed or {}

    def option(self, option: Option, reference: Reference) -> str:
        if option.name == "settings":
            return "--set"
        flag = "" if option.positional else option.flag
        if reference.role == "given":
            flag = self.typed.get(option.name, flag)
        if not flag and reference.role == "use":  # of an argument that also has a flag, which is clearer in a sentence
            flag = next(iter(option.flags), "")
        if not reference.has_value:
            return flag or option.metavar.strip("[]")
        if option.switch:
            return flag.replace("--", "--no-", 1) if reference.value is False else flag
        if reference.slot:
            return f"{flag} {reference.slot}".lstrip()
        several_words = isinstance(reference.value, list) and (option.form.count > 1 or option.repeats)
        texts = [shlex.quote(option.text(each)) for each in (reference.value if several_words else [reference.value])]
        between = f" {flag} " if option.repeats and flag else " "
        return f"{flag} {between.join(texts)}".lstrip()

    def setting(self, reference: Reference) -> str:
        return f"--set {reference.name}={reference.slot or shown(reference.value)}"
