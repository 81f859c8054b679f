"""PyTorch's torchrun with the exit codes of the processes it starts: `python -m vernier.engine.processes.torchrun`.

torchrun itself ends with 1, whatever its processes end with, so a scheduler cannot tell a training that stopped with a
checkpoint from one that failed. Takes torchrun's own arguments. Reading what it tells the processes is `launch`'s.
"""

import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, EXIT_USAGE

from .launch import STOP_WAIT_S


def _main(arguments: Sequence[str]) -> int:
    """Run torchrun. Gives 0, 75 or 2 where all processes of this host agree, 128 and more for a signal, otherwise 1."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    launcher: Any = import_module("torch.distributed.run")  # it has no types
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(STOP_WAIT_S))  # to save a checkpoint; 30 otherwise
    try:
        launcher.run(launcher.parse_args(list(arguments)))
    except ChildFailedError as error:
        return _common_code([failure.exitcode for failure in error.failures.values()])
    except SignalException as error:
        return 128 + int(error.sigval)
    return EXIT_DONE


def _common_code(codes: Collection[int]) -> int:
    """The exit code of a group from those of its failed processes."""
    for code in (EXIT_STOPPED, EXIT_USAGE):
        if set(codes) == {code}:
            return code
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
