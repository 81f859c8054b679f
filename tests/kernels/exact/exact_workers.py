"""Trainings with exact reduction in several processes, and a digest of all that each one left.

`python exact_workers.py PLANS.json` does the plans of one process itself and forks the processes of others, so that
PyTorch is imported once: starting each process would cost seconds.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.conftest import only_run
from tests.engine.processes.workers import config_for
from tests.tiny_training import tiny_detector_config
from vernier.config import Config, override
from vernier.devices import resolve
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import World, join_processes
from vernier.engine.training.checkpoints.resume import ResumePoint
from vernier.engine.training.session import train
from vernier.engine.training.step import TrainStep
from vernier.records.events import EvalEvent, StepEvent
from vernier.store import RunDir

EXACT = {
    "machine.reduction": "exact",
    "machine.telemetry_hz": 0.0,
    "limits.max_steps": 4,
    "limits.log_every_steps": 1,
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {
        "model.width": 40,  # two buckets
        "machine.bucket_mb": 1,
        "limits.train_accuracy": True,
        "eval.every_epochs": 1 / 3,
        "checkpoint.every_steps": 2,
    },
    "rich": {  # MixUp or CutMix, growing images, stochastic depth, ghost batch norm, LAMB, EMA, clipping
        "augment.mixup": 0.2,
        "augment.cutmix": 1.0,
        "augment.start_px": 8,
        "augment.phase_epochs": (1.0,),
        "data.epoch_images": 48,
        "model.drop_path": 0.3,
        "model.batch_norm_images": 1,
        "ema.decay": 0.9,
        "optim.name": "lamb",
        "optim.clip_norm": 0.5,
    },
    "lars": {
        "optim.name": "lars",
        "augment.repeats": 2,
        "machine.precision": "bf16",
        "machine.allow_slow": True,
        "model.freeze": ("conv1", "bn1"),
    },
    "adamw": {
        "optim.name": "adamw",
        "optim.lr": 0.001,
        "optim.layer_decay": 0.8,
        "ema.decay": 0.9,
        "machine.precision": "fp16",
        "machine.allow_slow": True,
        "machine.loss_scale": 2.0**21,
    },
    "half": {"machine.precision": "fp16", "machine.allow_slow": True, "machine.loss_scale": 2.0**21},
    "detector": {"global_batch": 12, "eval.every_epochs": 0.0},
}
"""Loss scaling of `half` and `adamw` starts so high that some steps overflow and are skipped."""
KILLED_AFTER, SAVED_EVERY = 3, 2


def config_of(name: str, plan: dict[str, Any], procs: int, **more: Any) -> Config:
    config = tiny_detector_config(Path(plan["boxes"])) if name == "detector" else config_for(plan["shapes"])
    machine = {"machine.procs": procs, "machine.activation_checkpointing": procs == 2}  # which must change nothing
    for setting, value in {**EXACT, **SCENARIOS[name], **machine, **more}.items():
        config = override(config, setting, value)
    return config


def digest(run: RunDir) -> str:
    """Weights, optimiser, average, statistics, scale of the loss, and every recorded loss and result."""
    checkpoint = run.checkpoints.committed()[-1]
    content = hashlib.sha256()
    for file in sorted(checkpoint.path.glob("*.safetensors")):
        content.update(file.read_bytes())
    state = json.loads((checkpoint.path / "state.json").read_text())["progress"]
    results: list[Any] = [state["step"], state.get("scaler"), state["best_value"]]
    for event in run.history():
        if isinstance(event, StepEvent):
            results.append([event.step, event.loss, event.top1, event.top5, event.loss_scale, event.skipped_steps])
        if isinstance(event, EvalEvent):
            results.append([event.step, event.figures])
    content.update(json.dumps(results).encode())
    return content.hexdigest()


def digests(plan: dict[str, Any], world: World) -> dict[str, str]:
    """A digest per training, and one of the training that other processes began and were killed in."""
    answers = {}
    for name in plan["scenarios"]:
        answers[name] = digest(train(config_of(name, plan, world.size), Path(plan["out"]) / name, world=world).run)
    if plan["resume"]:
        run = RunDir.open(only_run(Path(plan["resume"])))
        point = ResumePoint(run, run.checkpoints.committed()[-1])
        assert point.step == SAVED_EVERY
        answers["resumed"] = digest(train(config_of("plain", plan, world.size), run.path, point, world=world).run)
    return answers


def train_until_killed(plan: dict[str, Any], world: World) -> None:
    """All processes die in the middle of a step, after a checkpoint and a step that is not in it."""
    update = TrainStep._update

    def last_update(step: TrainStep, number: int) -> None:
        if number == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        update(step, number)

    TrainStep._update = last_update  # type: ignore[method-assign]
    changes = {"checkpoint.every_steps": SAVED_EVERY, "checkpoint.background": False}
    train(config_of("plain", plan, world.size, **changes), Path(plan["out"]) / "killed", world=world)


def run_process(plan: dict[str, Any]) -> None:
    """What one of the forked processes does."""
    with join_processes(topology(), resolve("cpu"), config_for(plan["shapes"]).machine) as world:
        if plan["kill"]:
            train_until_killed(plan, world)
        answers = digests(plan, world)
        if world.first:
            Path(plan["answer"]).write_text(json.dumps(answers))


def fork(plan: dict[str, Any]) -> list[int]:
    """Run `plan` in `plan["procs"]` processes; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"WORLD_SIZE": str(plan["procs"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = []
    for rank in range(plan["procs"]):
        child = os.fork()
        if child == 0:
            os.environ.update(where, RANK=str(rank))
            try:
                run_process(plan)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(path: str) -> None:
    for plan in json.loads(Path(path).read_text()):
        if plan["procs"] == 1:
            run_process(plan)
            continue
        codes = fork(plan)
        expected = -signal.SIGKILL if plan["kill"] else 0
        if any(code != expected for code in codes):
            sys.exit(f"{plan['procs']} processes ended with {codes}")


if __name__ == "__main__":
    main(sys.argv[1])
