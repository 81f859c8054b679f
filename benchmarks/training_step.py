"""The training step: Vernier's beside loops written by hand, in fp32 and bf16 on the CPU.

Every arm is a process of its own, since memory allocation and environment differ: all are started and warmed up, then
take turns, one block of steps each, in a random order every round. All train the same network, from the same weights,
on one batch that stays in memory:

- `plain`: what one writes first; contiguous tensors, `torch.optim.SGD`, nothing else.
- `torchvision`, `torchvision-compile`: the step of torchvision's reference scripts, with channels-last memory, and
  with `torch.compile` as well.
- `timm`, `timm-compile`: the step of timm's training script (Nesterov, loss checked every step), likewise.
- `vernier`, `vernier-compile`: the step of `vernier train`, which also normalises the images, checks gradients and sets
  the learning rate; the others get normalised images. `vernier-winograd` with `machine.convolution=winograd`.
- `-bf16` behind a name: under autocast to bf16.

Prints images per second, page faults per step and peak memory of each arm, and the ratio of each arm of Vernier to
`plain` and to the best of the others with the same precision: medians over rounds, with 95 % intervals.

    python benchmarks/training_step.py resnet50|resnext101-32x4d|ssd300-resnet34 [--batch N] [--rounds 15] [--arms A,B]
"""

import argparse
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vernier.api.starting import limit_spinning
from vernier.clock import now_s, process_cpu_s, utc_stamp
from vernier.config import Augment, Config, Data, Eval, Machine, Model, Recipe, Schedule
from vernier.optim.kinds.sgd import Sgd

BATCH = {"resnet50": 16, "resnext101-32x4d": 8, "ssd300-resnet34": 8}
OTHERS = ("torchvision", "torchvision-compile", "timm", "timm-compile")
OWN = ("vernier", "vernier-compile", "vernier-winograd", "vernier-winograd-compile")
FP32 = ("plain", *OTHERS, *OWN)
BF16 = tuple(f"{name}-bf16" for name in (*OTHERS, "vernier", "vernier-compile"))
WARM_UP_STEPS = 3
CLASSES = 1000
OBJECTS = 8  # per image of a detector's batch: COCO has 7.3

Step = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Block:
    """What an arm's steps took: wall seconds, processor seconds of all threads and page faults per step, and the peak
    of its memory so far."""

    seconds: float
    processor_s: float
    page_faults: float
    peak_mib: int


# ----------------------------------------------------------------------------------------------------- arms, by process


def random_batch(network: str, count: int, image_px: int) -> tuple[Any, Any]:
    """uint8 images in channels-last memory, and labels or boxes."""
    import torch

    from vernier.data.loading.targets import BoxTargets

    torch.manual_seed(0)
    images = torch.randint(0, 256, (count, image_px, image_px, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    if not network.startswith("ssd"):
        return images, torch.randint(0, CLASSES, (count,))
    corners = [torch.rand(OBJECTS, 2, 2).sort(dim=1).values.reshape(-1, 4) for _ in range(count)]
    kinds = [torch.randint(1, 81, (OBJECTS,)) for _ in range(count)]
    return images, BoxTargets.pad(corners, kinds, samples=range(count), sizes=[(480, 640)] * count)


def step_config(network: str, count: int, image_px: int, machine: Machine, *, source: str = "static") -> Config:
    """A training of which only steps are taken, that never ends."""
    short_side = {} if network.startswith("ssd") else {"eval_short_side_px": image_px}
    recipe = Recipe(
        name="step",
        global_batch=count,
        model=Model(name=network),
        augment=Augment(crop="none" if source == "static" else "random-resized"),
        data=Data(source=source, image_px=image_px, eval_px=image_px, **short_side),
        optim=Sgd(lr=1e-4),
        schedule=Schedule(epochs=1e6),
        eval=Eval(every_epochs=0),
    )
    return Config(recipe=recipe, machine=machine)


def vernier_step(network: str, count: int, image_px: int, machine: Machine) -> Step:
    """The code path of `vernier train`, fed with one batch."""
    from vernier.data.loading.loader import Batch
    from vernier.engine.training.setup import prepare

    job = prepare(step_config(network, count, image_px, machine))
    batches = itertools.repeat(Batch(*random_batch(network, count, image_px), 0.0))
    steps = itertools.count()

    def step() -> None:
        job.step(next(steps), batches)

    return step


def hand_written_step(network: str, count: int, style: str) -> Step:
    """The steps of others: the same network code and, for a detector, the same loss."""
    import torch

    from vernier import models
    from vernier.config import Detect
    from vernier.models.ssd import Ssd, make_anchors
    from vernier.tasks.detection.boxes import detection_loss

    name, *options = style.split("-")
    torch.manual_seed(0)
    model = models.build(network, num_classes=81 if network.startswith("ssd") else CLASSES).train()
    pixels, targets = random_batch(network, count, getattr(model, "image_px", 224))
    images = (pixels.float() / 255 - 0.45) / 0.225
    layout = torch.contiguous_format if name == "plain" else torch.channels_last
    model, images = model.to(memory_format=layout), images.contiguous(memory_format=layout)
    if isinstance(model, Ssd):
        anchors = make_anchors(model.levels)

        def criterion(outputs: Any, targets: Any) -> torch.Tensor:
            return detection_loss(*outputs, targets, anchors, Detect())
    else:
        criterion = torch.nn.CrossEntropyLoss()
    nesterov = name == "timm"
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, nesterov=nesterov)
    forward = torch.compile(model) if "compile" in options else model

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in options):
            outputs = forward(images)
        loss = criterion(outputs.float() if isinstance(outputs, torch.Tensor) else outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if name != "plain":
            loss.item()  # both scripts log it

    return step


def serve(network: str, count: int, arm: str) -> None:
    began_s = now_s()
    if arm.startswith("vernier"):
        limit_spinning()
        px = 300 if network.startswith("ssd") else 224
        machine = Machine(
            mode="compile" if "compile" in arm else "eager",
            convolution="winograd" if "winograd" in arm else "torch",
            precision="bf16" if "bf16" in arm else "fp32",
            cache_share=0.0,
        )
        step = vernier_step(network, count, px, machine)
    else:
        step = hand_written_step(network, count, arm)
    answer_requests(step, began_s)


def answer_requests(step: Step, began_s: float) -> None:
    """Warm an arm up; then answer each number of steps on standard input with a block on standard output."""
    for _ in range(WARM_UP_STEPS):
        step()
    answer({"start_s": now_s() - began_s})
    for line in sys.stdin:
        steps, before, began_cpu_s, began_s = int(line), page_faults(), process_cpu_s(), now_s()
        for _ in range(steps):
            step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        seconds, processor_s = (now_s() - began_s) / steps, (process_cpu_s() - began_cpu_s) / steps
        faults = (page_faults() - before) / steps
        answer(asdict(Block(seconds=seconds, processor_s=processor_s, page_faults=faults, peak_mib=peak)))


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def answer(document: dict[str, float]) -> None:
    print(json.dumps(document), flush=True)


# ------------------------------------------------------------------------------------------------------------ measuring


class Arm:
    """One process that takes steps when it is told to; the command ends in `answer_requests`."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start_s = self._read()["start_s"]
        self.blocks: list[Block] = []

    def take(self, steps: int) -> None:
        assert self._process.stdin is not None
        print(steps, file=self._process.stdin, flush=True)
        self.blocks.append(Block(**self._read()))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self._process.args)} ended with {self._process.wait()}")  # type: ignore[arg-type]
        document: dict[str, Any] = json.loads(line)
        return document

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def median_s(self) -> float:
        return statistics.median(block.seconds for block in self.blocks)


def measure(network: str, count: int, names: list[str], rounds: int, block: int) -> dict[str, Arm]:
    arms: dict[str, Arm] = {}
    try:
        for name in names:
            arms[name] = Arm([sys.executable, __file__, network, "--batch", str(count), "--serve", name])
        for _ in range(rounds):
            for name in random.sample(names, len(names)):
                arms[name].take(block)
    finally:
        for arm in arms.values():
            arm.close()
    return arms


def ratio(arm: Arm, reference: Arm) -> str:
    """How many times faster, round by round, by wall time and by processor time, which other programs disturb less."""
    from loop_overhead import format_median

    pairs = list(zip(arm.blocks, reference.blocks, strict=True))
    wall = [theirs.seconds / own.seconds for own, theirs in pairs]
    processor = [theirs.processor_s / own.processor_s for own, theirs in pairs]
    return f"{format_median(wall, 2)}, by processor time {format_median(processor, 2)}"


def show(network: str, count: int, arms: dict[str, Arm], rounds: int, block: int) -> None:
    from vernier.measure.environment import collect_environment

    environment = collect_environment([], "cpu", os.cpu_count() or 1)
    print(
        f"{utc_stamp()}  {network}, batch {count}; {environment.cpu.cores_logical} cores, torch "
        f"{environment.versions['torch']}, load {environment.cpu.load_average}; n = {rounds} rounds of {block} steps"
    )
    for name, arm in arms.items():
        same = [other for other in arms if other.endswith("-bf16") == name.endswith("-bf16")]
        others = [arms[other] for other in same if other.startswith(OTHERS)]
        best = min(others, key=Arm.median_s) if others else None
        seconds = sorted(b.seconds for b in arm.blocks)
        text = (
            f"{name:20s} {count / arm.median_s():6.2f} img/s ({count / seconds[-1]:.2f} to {count / seconds[0]:.2f}), "
            f"{statistics.median(b.page_faults for b in arm.blocks):9.0f} page faults per step, "
            f"{arm.blocks[-1].peak_mib:6d} MiB, ready after {arm.start_s:5.1f} s"
        )
        if "plain" in arms and name != "plain":
            text += f"\n    x plain: {ratio(arm, arms['plain'])}"
        if best is not None and name.startswith("vernier"):
            text += f"\n    x the best of the others: {ratio(arm, best)}"
        print(text + ("\n    the best of the others" if arm is best else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(BATCH))
    parser.add_argument("--batch", type=int, help="images per step; default 16, 8 and 8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block", type=int, default=1, help="steps per arm and round")
    parser.add_argument("--arms", default=",".join(FP32), help=f"default: all in fp32; there are {', '.join(BF16)} too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    count = options.batch or BATCH[options.network]
    if options.serve:
        serve(options.network, count, options.serve)
        return
    names = options.arms.split(",")
    if unknown := set(names) - {*FP32, *BF16}:
        parser.error(f"--arms: no arm is called {', '.join(sorted(unknown))}; there are {', '.join((*FP32, *BF16))}")
    arms = measure(options.network, count, names, options.rounds, options.block)
    show(options.network, count, arms, options.rounds, options.block)


if __name__ == "__main__":
    main()
