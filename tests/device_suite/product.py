"""Running commands on the device under test, and runs that several tests share."""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tests.conftest import Done, command, only_run
from vernier.devices import kinds

LIMIT_S = 300.0


def settings(*changes: str) -> tuple[str, ...]:
    """Arguments that change settings: `--set NAME=VALUE` for each."""
    return tuple(word for change in changes for word in ("--set", change))


TINY = settings(
    "data.image_px=16", "data.eval_px=16", "data.eval_short_side_px=16", "model.width=8", "model.stem=small"
)
TRAIN = (
    *("--epochs", "1", "--max-eval-steps", "1", "--no-tensorboard"),
    *settings("machine.threads=1", "machine.eval_batch=16", "machine.telemetry_hz=0", "schedule.warmup_epochs=0"),
    *settings("checkpoint.every_steps=1", "checkpoint.keep_last=20", "checkpoint.every_epochs=0"),
    *settings("limits.log_every_steps=1"),
)
CLASSIFIER = ("--model", "resnet8-small", "--global-batch", "16", *TINY, *TRAIN)
EVERYTHING = (
    *("--max-steps", "8"),
    *settings("augment.mixup=0.2", "loss.label_smoothing=0.1", "model.drop_path=0.2", "ema.decay=0.9"),
    *settings("machine.accumulation=2", "optim.clip_norm=1"),
)
"""A classifier with MixUp, averaged weights, DropPath, accumulation, clipping and label smoothing."""
DETECTOR = (
    *("ssd-shapes-quick", "--max-steps", "3", *TRAIN),
    *settings("data.image_px=64", "data.eval_px=64", "model.width=8", "global_batch=4"),
    *settings("machine.accumulation=2", "optim.clip_norm=1"),
)


@dataclass(frozen=True)
class Product:
    """Commands on one device. `folder` is shared by all workers of a test session."""

    device: str
    environment: dict[str, str]
    folder: Path
    classes: Path
    """Data to classify."""
    boxes: Path
    """Data to detect."""

    def run(self, *arguments: str, code: int = 0, environment: dict[str, str] | None = None) -> Done:
        """A command that must end with this exit code."""
        ended = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=LIMIT_S,
            env=environment or self.environment,
        )
        assert ended.returncode == code, (
            f"exit code {ended.returncode} of vernier {' '.join(arguments)}\n{ended.stderr}"
        )
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def classifier(self, *more: str, device: str = "") -> list[str]:
        """Arguments of `vernier train` for a classifier."""
        return ["train", "--data", str(self.classes), *CLASSIFIER, "--device", device or self.device, *more]

    def everything(self, *, device: str = "") -> list[str]:
        """A classifier with everything; with deterministic operations, since its bits are compared, where there are."""
        return self.classifier(*EVERYTHING, *(["--deterministic"] if self.deterministic else []), device=device)

    @property
    def shared(self) -> bool:
        """Whether several processes may use one device."""
        return self.device == "rgpu" or kinds()[self.device].shared  # rgpu is not imported here

    @property
    def deterministic(self) -> bool:
        """Whether the device guarantees that a run repeats bit for bit."""
        return self.device == "rgpu" or kinds()[self.device]().deterministic().verdict == "yes"

    def detector(self, *, device: str = "") -> list[str]:
        """Arguments of `vernier train` for a detector."""
        return ["train", *DETECTOR, "--data", str(self.boxes), "--device", device or self.device]

    def trained(self, name: str, arguments: list[str]) -> Path:
        """The run of this command, trained once per test session; `name` is that of its folder."""
        out = self.folder / name
        once(out, lambda: self.run(*arguments, "--out", str(out)))
        return only_run(out)

    def agree(self, name: str, arguments: Callable[[str], list[str]]) -> float:
        """Distance between the weights trained here and on the CPU, over the distance they were trained.

        Both are the Euclidean norm over all weights; the second is that between the first and the last step.
        """
        runs = [self.trained(f"{name}-{device}", arguments(device)) for device in (self.device, "cpu")]
        here, cpu = (weights(run, -1) for run in runs)
        return distance(here, cpu) / distance(weights(runs[1], 0), cpu)

    def ability(self, precision: str, mode: str) -> dict[str, Any]:
        """What the device answers for a precision and a mode: verdict, why, instead."""
        answer = self.examination()["abilities"]
        (row,) = (a for a in answer if (a["device"], a["precision"], a["mode"]) == (self.device, precision, mode))
        return dict(row)

    def examination(self) -> dict[str, Any]:
        """What `vernier doctor` says."""
        path = self.folder / "doctor.json"
        once(path, lambda: path.write_text(self.run("doctor", "--json").out))
        return dict(json.loads(path.read_text()))


def once(path: Path, make: Callable[[], object]) -> None:
    """Call `make`, which makes this path, in the first process that needs it; the others wait for it."""
    done = path.with_name(f"{path.name}.done")
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make()
            done.touch()


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, by step."""
    return sorted((run / "checkpoints").glob("step-*"))


def compilations(run: Path) -> dict[int, int]:
    """The graphs that were compiled in each reported step of a run."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return {event["step"]: event.get("compilations") or 0 for event in events if event["kind"] == "step"}


def state(run: Path) -> dict[str, bytes]:
    """The bytes of weights, optimiser and average in the last checkpoint, and its progress."""
    newest = checkpoints(run)[-1]
    progress = json.loads((newest / "state.json").read_text())["progress"]
    progress.pop("spent_s")
    files = {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}
    assert "model.safetensors" in files
    return {**files, "progress": json.dumps(progress).encode(), "step": newest.name.encode()}


def weights(run: Path, index: int) -> dict[str, torch.Tensor]:
    """The floating-point weights of one of a run's checkpoints."""
    tensors = load_file(checkpoints(run)[index] / "model.safetensors")
    return {name: tensor.double() for name, tensor in tensors.items() if tensor.is_floating_point()}


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Euclidean distance of all weights."""
    assert a.keys() == b.keys()
    return float(torch.stack([(a[name] - b[name]).square().sum() for name in a]).sum().sqrt())


def interrupt(
    arguments: list[str],
    out: Path,
    *,
    after_steps: int,
    environment: dict[str, str],
    strike: Callable[["subprocess.Popen[str]"], object],
) -> Done:
    """Start a training, strike once it has logged so many steps of its own, and return how it ended."""
    before = steps_logged(out)
    child = subprocess.Popen(
        command(*arguments, "--out", str(out)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    limit_s = time.monotonic() + LIMIT_S
    while child.poll() is None and steps_logged(out) < before + after_steps:
        if time.monotonic() > limit_s:
            child.kill()
        time.sleep(0.002)
    if child.poll() is None:
        strike(child)
    out_text, err = child.communicate(timeout=LIMIT_S)
    return Done(child.returncode, out_text, err)


def kill(child: "subprocess.Popen[str]") -> None:
    child.send_signal(signal.SIGKILL)


def terminate(child: "subprocess.Popen[str]") -> None:
    child.send_signal(signal.SIGTERM)


def steps_logged(out: Path) -> int:
    """Steps in the events of all runs of a folder."""
    return sum(path.read_text().count('"kind": "step"') for path in out.glob("*/events.jsonl"))


def device_under_test() -> str:
    """The device that VERNIER_TEST_DEVICE names; rgpu without it."""
    return os.environ.get("VERNIER_TEST_DEVICE") or "rgpu"
