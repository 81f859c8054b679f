"""Every private part of tyro that Vernier relies on, each behind a function that says why.

When a release of tyro changes one of them, this file and its tests are the only ones to change.
"""

import contextlib
import io

import tyro
from tyro.conf import OmitArgPrefixes


def use_colours(on: bool) -> None:
    """Switch the colours of help and usage errors on or off. tyro has no public setting for it."""
    tyro._experimental_options["ansi_codes"] = on


def completion_script(app: tyro.extras.SubcommandApp, shell: str, prog: str) -> str:
    """Give tyro's completion script for a shell. tyro can only print it and exit.

    The bash script contains all help texts in one line of Python. A help text of several lines would be offered as
    completions from its second line on, so line breaks become spaces.
    """
    script = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(script):
        app.cli(args=["--tyro-print-completion", shell], prog=prog, config=(OmitArgPrefixes,))
    lines = script.getvalue().splitlines(keepends=True)
    return "".join(line.replace("\\n", " ") if line.startswith("COMPLETION_SPEC = ") else line for line in lines)
