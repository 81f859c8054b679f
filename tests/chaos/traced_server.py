"""Runs command lines in forks of one process that has imported everything.

`python -m tests.chaos.traced_server MODULE`: MODULE is `vernier.cli`, or another one with a function `main` of the
arguments that returns an exit code. A fork takes milliseconds where a new process imports PyTorch for seconds. Requests
and replies are JSON lines on standard input and output, see `tracing.Server`. A request may name several commands: they
run at the same time, as the processes of one run.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

from .fork_server import finish

LIMIT_S = 300
"""A command that takes longer hangs; SIGALRM ends it."""
IMPORTED = (
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "hotcoco",
    "simplejpeg",
    "PIL.JpegImagePlugin",
    "vernier.lab.logs.exports",
    "vernier.cli.training",
    "vernier.data.shapes",
    "vernier.engine.inference.evaluate",
    "vernier.engine.training.checkpoints.resume",
    "vernier.engine.training.session",
    "vernier.compat.trackers.sinks",
    "vernier.lab.logs.reading",
)


def _become(command: dict[str, Any], output: str) -> None:
    """Make this fork the command's process: its own output, environment and wishes for the tracer."""
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(command["environment"])
    signal.alarm(LIMIT_S)
    ctypes.CDLL(None).prctl(*(ctypes.c_ulong(word) for word in command["request"]))


def _operations() -> int:
    """How many operations the tracer has counted in this process and its relatives."""
    from tests.chaos.tracing import Request

    return int(ctypes.CDLL(None).prctl(ctypes.c_ulong(Request.COUNT), 0, 0, 0, 0))


def _run(arguments: list[str], count_to: int) -> NoReturn:
    """Run the command and end as an interpreter does, but leave the memory to the kernel."""
    code = 1
    try:
        code = import_module(sys.argv[1]).main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        finish()
        os.write(count_to, f"{_operations()}\n".encode())
        os._exit(code)


def _fork_and_wait(request: dict[str, Any]) -> dict[str, Any]:
    """Run the commands of a request in forks; the reply."""
    reading, writing = os.pipe()
    children = []
    for command in request["commands"]:
        child = os.fork()
        if child == 0:
            _become(command, request["output"])
            _run(command["arguments"], writing)
        children.append(child)
    os.close(writing)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    with os.fdopen(reading) as f:
        counts = [int(line) for line in f]
    return {"codes": codes, "counts": counts}


def serve() -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imports print is no reply
    for name in (*(IMPORTED if sys.argv[1] == "vernier.cli" else ()), sys.argv[1]):
        import_module(name)
    gc.collect()
    gc.freeze()  # the forks need not look at what they inherit
    for line in sys.stdin:
        replies.write(json.dumps(_fork_and_wait(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    serve()
