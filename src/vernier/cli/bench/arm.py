"""`vernier bench arm`: the process that the other benchmarks and `vernier study run` start, with JSON in and out."""

import json
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vernier.cli.launching import joined, silence_profiler, start_processes, with_procs
from vernier.errors import EXIT_DONE, ConfigError
from vernier.records.bench import ArmRequest, TurnsRequest, decode_request
from vernier.records.codec import DamagedRecord, encode
from vernier.signals import end_with_parent
from vernier.store import read_json

RequestPath = Annotated[Positional[str], arg(metavar="REQUEST")]
AnswerPath = Annotated[Positional[str], arg(metavar="ANSWER")]


def arm(request: RequestPath, answer: AnswerPath, /) -> int:
    """Measure one arm of a benchmark in this process. Internal: the other benchmarks start it.

    Args:
        request: JSON file that says what to measure.
        answer: JSON file to write the result to.
    """
    silence_profiler()
    from vernier.config import config_from_tree
    from vernier.engine.measured.arm import guard_memory, run_request

    try:
        arm_request = decode_request(read_json(Path(request)))
    except (OSError, ValueError, DamagedRecord) as error:
        raise ConfigError(f"Cannot read what to measure from {request}: {error}.") from None
    if isinstance(arm_request, TurnsRequest):
        end_with_parent()
    config, to_start = with_procs(config_from_tree(arm_request.config or {}))
    if to_start:
        return start_processes(to_start)
    limit = arm_request.memory_limit_bytes if isinstance(arm_request, ArmRequest | TurnsRequest) else None
    guard_memory(limit, config.machine.procs)
    with joined(config) as world:
        result = run_request(arm_request, world)
        if world.first:
            Path(answer).write_text(json.dumps(encode(result)), encoding="utf-8")
    return EXIT_DONE
