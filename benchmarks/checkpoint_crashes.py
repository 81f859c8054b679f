"""What is left of a checkpoint when the process is killed while it saves: Vernier beside what else is in use.

Each way of saving writes the same tensors (ResNet-18 and its momentum, 94 MB) to the same disk, step after step, in a
process that is killed (SIGKILL) at a random moment of a save. Then a fresh process does what a script does to resume,
and compares: every element of the state of step n is n, so a state that is not of one step shows. The counts say
whether there was a whole state, whether it was the newest that had been saved, and whether a wrong one was taken for
whole. A kill is not a power cut: what the kernel has is not lost.

    python benchmarks/checkpoint_crashes.py [--kills 100] [--folder DIR] [--only TEXT] [--seed 1]

Lightning and accelerate take part where they can be imported.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import importlib.util
import mmap
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import nn

from vernier.clock import utc_stamp
from vernier.devices.cpu import cpu_name
from vernier.models import build
from vernier.store import Checkpoints

State = dict[str, torch.Tensor]
STEP = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class Way:
    """A way of saving, and what a script does to resume from it. `load` raises or returns nothing where nothing is."""

    name: str
    save: Callable[[State, int, Path], None]
    load: Callable[[State, Path], State | None]


def by_step(folder: Path) -> list[Path]:
    """Entries that end in a number, newest first."""
    numbered = [(int(match[1]), p) for p in folder.iterdir() if (match := STEP.search(p.stem))]
    return [p for _, p in sorted(numbered, reverse=True)]


def keep_two(folder: Path) -> None:
    """As scripts do that write a new one each time."""
    for old in by_step(folder)[2:]:
        shutil.rmtree(old)


# ----------------------------------------------------------------------------------------------------- plain PyTorch


def save_in_place(state: State, step: int, folder: Path) -> None:
    torch.save(state, folder / "checkpoint.pt")


def save_and_rename(state: State, step: int, folder: Path) -> None:
    torch.save(state, folder / "checkpoint.pt.tmp")
    (folder / "checkpoint.pt.tmp").replace(folder / "checkpoint.pt")


def load_plain(like: State, folder: Path) -> State:
    loaded: State = torch.load(folder / "checkpoint.pt", weights_only=True)
    return loaded


def save_safetensors(state: State, step: int, folder: Path) -> None:
    save_file(state, folder / "checkpoint.safetensors")


def load_safetensors(like: State, folder: Path) -> State:
    return load_file(folder / "checkpoint.safetensors")


# ------------------------------------------------------------------------------------- torch.distributed.checkpoint


def dcp_in_place(state: State, step: int, folder: Path) -> None:
    dcp.save(state, checkpoint_id=folder / "checkpoint", no_dist=True)


def dcp_new_folder(state: State, step: int, folder: Path) -> None:
    dcp.save(state, checkpoint_id=folder / f"step-{step}", no_dist=True)
    keep_two(folder)


def _load_dcp(like: State, path: Path) -> State:
    loaded = {name: torch.full_like(tensor, -1) for name, tensor in like.items()}
    dcp.load(loaded, checkpoint_id=path, no_dist=True)
    return loaded


def load_dcp_in_place(like: State, folder: Path) -> State:
    return _load_dcp(like, folder / "checkpoint")


def load_dcp_newest(like: State, folder: Path) -> State:
    return _load_dcp(like, by_step(folder)[0])


def load_dcp_newest_whole(like: State, folder: Path) -> State | None:
    """The newest folder that can be loaded: a script that expects this."""
    for path in by_step(folder):
        with contextlib.suppress(Exception, dcp.api.CheckpointException):
            return _load_dcp(like, path)
    return None


# ------------------------------------------------------------------------------------------------------------ Vernier


def save_vernier(state: State, step: int, folder: Path) -> None:
    checkpoints = Checkpoints(folder)
    checkpoints.commit(step, lambda temporary: save_file(state, temporary / "model.safetensors"))
    committed = checkpoints.committed()
    checkpoints.prune(committed, {c.step for c in committed[-2:]}.__contains__)


def load_vernier(like: State, folder: Path) -> State | None:
    checkpoints = Checkpoints(folder)
    checkpoints.tidy()
    newest = checkpoints.newest()
    return load_file(newest.path / "model.safetensors") if newest else None


# ---------------------------------------------------------------------------------------------------- other packages


def lightning_ways() -> list[Way]:
    if importlib.util.find_spec("lightning") is None:
        return []
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)

    def save(state: State, step: int, folder: Path) -> None:
        fabric.save(folder / "checkpoint.pt", {"model": state})

    def load(like: State, folder: Path) -> State:
        loaded: State = torch.load(folder / "checkpoint.pt", weights_only=True)["model"]
        return loaded

    return [Way(f"Lightning {importlib.metadata.version('lightning')}, Fabric.save to one name", save, load)]


def accelerate_ways() -> list[Way]:
    if importlib.util.find_spec("accelerate") is None:
        return []
    from accelerate import Accelerator

    @functools.cache
    def prepared() -> tuple[Accelerator, nn.Module, torch.optim.Optimizer]:
        accelerator, model = Accelerator(cpu=True), build("resnet18", num_classes=1000).float()
        return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def hold(state: State) -> Accelerator:
        """Give the network and its optimiser this state."""
        accelerator, model, optimizer = prepared()
        model.load_state_dict({name: state[name] for name in model.state_dict()})
        for name, p in model.named_parameters():
            optimizer.state[p]["momentum_buffer"] = state[f"momentum.{name}"]
        return accelerator

    def save(state: State, step: int, folder: Path) -> None:
        hold(state).save_state(str(folder / "checkpoint"))

    def load(like: State, folder: Path) -> State:
        hold(like).load_state(str(folder / "checkpoint"))
        _, model, optimizer = prepared()
        momentum = {f"momentum.{n}": optimizer.state[p]["momentum_buffer"] for n, p in model.named_parameters()}
        return {**model.state_dict(), **momentum}

    return [Way(f"accelerate {importlib.metadata.version('accelerate')}, save_state to one folder", save, load)]


def all_ways() -> list[Way]:
    return [
        Way("torch.save to one name", save_in_place, load_plain),
        Way("torch.save to a temporary name, rename", save_and_rename, load_plain),
        Way("safetensors to one name", save_safetensors, load_safetensors),
        Way("DCP to one folder", dcp_in_place, load_dcp_in_place),
        Way("DCP, a folder per step; the newest is taken", dcp_new_folder, load_dcp_newest),
        Way("DCP, a folder per step; the newest that loads is taken", dcp_new_folder, load_dcp_newest_whole),
        *lightning_ways(),
        *accelerate_ways(),
        Way("Vernier", save_vernier, load_vernier),
    ]


# -------------------------------------------------------------------------------------------------------- kill and look


def tensors() -> State:
    model = build("resnet18", num_classes=1000)
    weights = {name: tensor.detach().float().contiguous() for name, tensor in model.state_dict().items()}
    momentum = {f"momentum.{name}": torch.zeros_like(p) for name, p in model.named_parameters()}
    return {**weights, **momentum}


def of_step(state: State, step: int) -> State:
    for tensor in state.values():
        tensor.fill_(step)
    return state


def step_of(state: State) -> int | None:
    """The step whose state this is; None where it is not of one step."""
    values = {float(value) for tensor in state.values() for value in (tensor.min(), tensor.max())}
    return int(values.pop()) if len(values) == 1 else None


def forked(work: Callable[[], int]) -> int:
    """Run something in a child process; its exit code."""
    if not (pid := os.fork()):
        code = 255
        try:
            with open(os.devnull, "w") as null, contextlib.redirect_stderr(null), contextlib.redirect_stdout(null):
                code = work()
        finally:
            os._exit(code)
    return pid


def _save_for_ever(way: Way, state: State, folder: Path, shared: mmap.mmap) -> int:
    for step in range(1, 100):
        of_step(state, step)
        shared[:8] = struct.pack("<q", step)
        way.save(state, step, folder)
        shared[8:16] = struct.pack("<q", step)
    return 0


def _look(way: Way, state: State, folder: Path, begun: int, done: int) -> int:
    """0: the newest state; 1: an older one; 2: nothing can be loaded; 3: what is loaded is not of one step."""
    try:
        loaded = way.load(of_step(state, 0), folder)
    except BaseException:  # DCP's CheckpointException is no Exception
        return 2
    if loaded is None:
        return 2
    step = step_of(loaded)
    return 3 if step is None or step > begun or step < 1 else int(step < done)


def crash(way: Way, state: State, root: Path, dice: random.Random, typical_s: float) -> int:
    """Save a few times, kill during one of the later ones, look."""
    shared = mmap.mmap(-1, 16)
    folder = Path(tempfile.mkdtemp(dir=root))
    victim, pid = dice.randrange(2, 5), forked(lambda: _save_for_ever(way, state, folder, shared))
    while struct.unpack("<q", shared[:8])[0] < victim:
        time.sleep(0.0005)
    time.sleep(dice.random() * typical_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    begun, done = struct.unpack("<qq", shared[:16])
    status = os.waitpid(forked(lambda: _look(way, state, folder, begun, done)), 0)[1]
    shutil.rmtree(folder)
    return os.waitstatus_to_exitcode(status)


def typical_s(way: Way, state: State, root: Path) -> float:
    """How long a save takes: the median of five."""
    folder, times = Path(tempfile.mkdtemp(dir=root)), []
    for step in range(1, 6):
        began_s = time.perf_counter()
        way.save(of_step(state, step), step, folder)
        times.append(time.perf_counter() - began_s)
    shutil.rmtree(folder)
    return sorted(times)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk to be tried")
    parser.add_argument("--only", default="", help="ways with this in their name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # children are forked: this process must have no threads
    root, state = Path(tempfile.mkdtemp(dir=options.folder)), tensors()
    megabytes = sum(t.nbytes for t in state.values()) / 1e6
    print(f"{utc_stamp()}, {cpu_name()}, torch {torch.__version__}, {megabytes:.0f} MB, n = {options.kills} each\n")
    print(
        "| saved with | save, s | newest | older | nothing loads | wrong state loads |\n|---|---:|---:|---:|---:|---:|"
    )
    for way in all_ways():
        if options.only not in way.name:
            continue
        seconds, dice = typical_s(way, state, root), random.Random(options.seed)
        counts = Counter(crash(way, state, root, dice, seconds) for _ in range(options.kills))
        row = " | ".join(str(counts[code]) for code in range(4))
        print(f"| {way.name} | {seconds:.2f} | {row} |", flush=True)
        if counts[255]:
            sys.exit(f"{way.name}: {counts[255]} times the look itself failed")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
