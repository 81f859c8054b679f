"""Commands are imported when they are used, and listed without."""

import subprocess
import sys

from vernier.cli import COMMANDS
from vernier.cli.usage.help_texts import first_line


def test_lists_say_what_the_docstrings_say() -> None:
    assert COMMANDS.about == {name: first_line(function) for name, function in COMMANDS.items()}
    assert len(COMMANDS) == len(COMMANDS.about)


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from vernier.cli import main; main(['--help']); "
        "heavy = ('vernier.cli.model', 'vernier.config', 'tyro', 'numpy'); "
        "print([m for m in sys.modules if m.startswith(heavy)], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")
