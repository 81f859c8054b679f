"""A load that takes some steps whenever it is its turn: the inside of a process of `vernier tune`.

The steps are those of `vernier train` or of evaluation (`workloads`). Between turns the process is stopped by the one
that started it (`lab.tuning.live`), loader threads included, so that it neither disturbs others nor loads ahead.
"""

import itertools
import statistics
import threading
from functools import partial
from pathlib import Path

from vernier.clock import now_s
from vernier.config import config_from_tree
from vernier.engine.processes.world import World
from vernier.lab.bench.measuring import warm_up
from vernier.lab.bench.progress import PhaseWatch
from vernier.records.bench import Plan, Ready, Turn, TurnsRequest
from vernier.records.codec import encode
from vernier.store import write_json

from .workloads import InferenceLoad, TrainingLoad

SHORT_STEP_S = 0.2
"""Below this, a turn begins with a step that does not count: caches and threads are those of another process."""
_POLL_S = 0.002


def run_turns(request: TurnsRequest, world: World) -> Ready:
    """Get ready, then take turns until the process is ended. Raises ConfigError for what cannot run here."""
    config = config_from_tree(request.config)
    load = TrainingLoad(config, world) if request.work == "train" else InferenceLoad(config)
    try:
        ready = _get_ready(load, request, world)
        if world.first:
            write_json(request.ready_file, encode(ready), sync=False)
        for number in itertools.count():
            world.broadcast_from_first(partial(_wait_for, request.turn_file(number)))
            turn = Turn(images_per_s=_take_turn(load, ready))
            if world.first:
                write_json(request.answer_file(number), encode(turn), sync=False)
        return ready
    finally:
        load.close()


def _get_ready(load: TrainingLoad | InferenceLoad, request: TurnsRequest, world: World) -> Ready:
    compiles = config_from_tree(request.config).machine.mode != "eager"
    plan = Plan(warmup_max_seconds=request.warmup_max_seconds)
    samples = warm_up(
        load, plan, lambda value: world.broadcast_from_first(lambda: value), PhaseWatch(compiles=compiles)
    )
    step_s = world.broadcast_from_first(lambda: statistics.median(samples.step_s[1:] or samples.step_s))
    return Ready(
        images_per_step=load.images,
        step_s=step_s,
        steps_per_turn=max(1, round(request.turn_s / step_s)),
        compile_s=load.network.compilation.seconds,
        ran=load.what_ran(),
    )


def _take_turn(load: TrainingLoad | InferenceLoad, ready: Ready) -> float:
    if ready.step_s < SHORT_STEP_S:
        load.step()
    began_s = now_s()
    for _ in range(ready.steps_per_turn):
        load.step()
    return ready.images_per_step * ready.steps_per_turn / (now_s() - began_s)


def _wait_for(path: Path) -> None:
    while not path.exists():
        threading.Event().wait(_POLL_S)
