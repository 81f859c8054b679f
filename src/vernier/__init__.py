"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured.

From Python, `vernier.run` carries out any command and returns its result.
"""

from typing import Any

__version__ = "0.2.0"


def run(*arguments: object) -> Any:
    """Carry out a command in a process of its own and return what it prints with `--json`, parsed.

    `vernier.run("train", "resnet50", "--data", folder)` is `vernier train resnet50 --data FOLDER`. Progress goes to
    standard error. Raises ConfigError (exit code 2) or RunFailed (any other but 0); the reason is on standard error.
    """
    import json
    import subprocess
    import sys

    from vernier.errors import EXIT_USAGE, ConfigError, RunFailed

    words = [str(argument) for argument in arguments]
    with_json = words if "--json" in words else [*words, "--json"]
    done = subprocess.run([sys.executable, "-m", "vernier", *with_json], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        message = f"vernier {' '.join(words)} ended with exit code {done.returncode}; the reason is printed above."
        raise ConfigError(message) if done.returncode == EXIT_USAGE else RunFailed(message)
    return json.loads(done.stdout)
