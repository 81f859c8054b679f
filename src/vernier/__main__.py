"""`vernier` and `python -m vernier`: signals first, then the command line, whose imports take a while."""

import os
import sys


def main() -> int:
    """Run the command of this process."""
    try:
        _open_closed_streams()
        from vernier import signals

        if training := sys.argv[1:2] in (["train"], ["finetune"]):
            signals.catch_from_start()
        import signal

        # A launcher blocks signals in the processes that it starts, until they have their handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
        from .cli import main as run_command
        from .report.live.terminal import protect_streams

        protect_streams()
        signals.unwind_from_now()
        code = run_command()
        if not training:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while Python ends prints no traceback
        return code
    except KeyboardInterrupt:
        sys.stderr.write("vernier: interrupted\n")
        return 130


def _open_closed_streams() -> None:
    """A stream that was closed (`2>&-`) is nowhere from now on: its number must not become that of another file."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


if __name__ == "__main__":
    raise SystemExit(main())
