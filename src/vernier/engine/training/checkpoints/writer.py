"""Writes checkpoints beside training: the loop waits for a copy of the tensors, a thread writes, hashes and syncs it.

One copy exists at a time, so memory is bounded: the next checkpoint waits until the one before it is on disk. What a
checkpoint holds is in `contents`, how it becomes durable in `vernier.store`.
"""

import contextlib
import errno
import os
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from vernier.clock import now_s
from vernier.config import Checkpoint
from vernier.config.migrations import SCHEMAS
from vernier.errors import RunFailed
from vernier.frozen import frozen
from vernier.records.codec import encode
from vernier.records.run import CheckpointState
from vernier.store import CheckpointDir, Checkpoints, usual_mode, write_json

from .contents import TensorFiles, Tensors


class NotSaved(RunFailed):
    """A checkpoint could not be written. The run can be resumed from its last one with the same command."""


@frozen
class _Saved:
    """A checkpoint that is on disk: how long that took, and how long training waited."""

    checkpoint: CheckpointDir
    seconds: float
    stall_s: float
    amended: bool = False
    problems: tuple[str, ...] = ()
    """What could not be done after it was safe: pointers, removing old ones."""


@frozen
class _Order:
    """One checkpoint to be written. `stall_s` is None where training waits for all of it."""

    fill: Callable[[Path], None]
    state: CheckpointState
    amend: bool
    began_s: float
    stall_s: float | None


class CheckpointWriter:
    """Writes the checkpoints of a run, in order. Not in `background`: `save` and `amend` return when it is on disk."""

    def __init__(self, checkpoints: Checkpoints, policy: Checkpoint, steps_per_epoch: int) -> None:
        self._checkpoints, self._policy, self._steps_per_epoch = checkpoints, policy, steps_per_epoch
        self._copy: TensorFiles | None = None
        self._sound: dict[CheckpointDir, bool] = {}
        self._error: Exception | None = None
        self._newest_step: int | None = None
        self._saved: queue.SimpleQueue[_Saved] = queue.SimpleQueue()
        self._orders: queue.Queue[_Order] = queue.Queue()
        self._thread: threading.Thread | None = None

    def save(
        self, tensors: TensorFiles, state: CheckpointState, check: Callable[[TensorFiles], None] = lambda _: None
    ) -> float:
        """Copy the tensors, then write them; the seconds that this took of the caller's time. Raises NotSaved.

        Nothing is written if `check`, which gets the copy, raises an error.
        """
        began_s = now_s()
        # The copy of the one before may still be read by the thread.
        self.wait()
        files = self._copy = _copy_to_host(tensors, self._copy)
        check(files)
        self._newest_step = state.step
        return self._order(lambda folder: _fill_checkpoint(folder, files, state), state, began_s, amend=False)

    def amend(self, state: CheckpointState) -> float:
        """Write the checkpoint of this step again with another state.json and the same tensors. Raises NotSaved."""
        return self._order(lambda folder: _write_state(folder, state), state, now_s(), amend=True)

    def has(self, step: int) -> bool:
        """Whether the checkpoint of this step is on disk or being written."""
        return step in (self._newest_step, *(checkpoint.step for checkpoint in self._checkpoints.committed()))

    @property
    def failed(self) -> bool:
        """Whether a checkpoint could not be written; `wait` raises the reason."""
        return self._error is not None

    def wait(self) -> None:
        """Until everything is on disk. Raises NotSaved."""
        self.close()
        self.raise_error()

    def raise_error(self) -> None:
        """Raise NotSaved if a checkpoint could not be written."""
        if isinstance(self._error, OSError):
            raise NotSaved(
                f"The checkpoint could not be saved: {self._error}. Earlier checkpoints are intact; run the same "
                "command to resume from the last one."
            ) from self._error
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Finish what is being written; an error no longer matters."""
        self._orders.join()

    def pop_saved(self) -> list[_Saved]:
        """The checkpoints that reached the disk since the last call."""
        saved = []
        with contextlib.suppress(queue.Empty):
            while True:
                saved.append(self._saved.get_nowait())
        return saved

    def _order(self, fill: Callable[[Path], None], state: CheckpointState, began_s: float, *, amend: bool) -> float:
        if self._thread is None:
            # A daemon: a process that dies must not wait for a disk that hangs.
            self._thread = threading.Thread(target=self._run, name="vernier-checkpoints", daemon=True)
            self._thread.start()
        background = self._policy.background
        stall_s = now_s() - began_s if background else None
        self._orders.put(_Order(fill=fill, state=state, amend=amend, began_s=began_s, stall_s=stall_s))
        if not background:
            self.wait()
        return now_s() - began_s

    # ------------------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            order = self._orders.get()
            try:
                if self._error is None:  # otherwise this one would follow one that is missing; the run is about to end
                    self._saved.put(self._write(order))
            # Kept for `wait` and `raise_error`: an exception in a thread reaches nobody.
            except Exception as error:
                self._error = error
            finally:
                self._orders.task_done()

    def _write(self, order: _Order) -> _Saved:
        step = order.state.step
        # The tensors of this step are on disk already: only state.json differs, and the rest is linked.
        reuse = next((c for c in self._checkpoints.committed() if c.step == step), None) if order.amend else None
        if order.amend and reuse is None:
            raise FileNotFoundError(errno.ENOENT, f"the checkpoint of step {step} has been removed")
        committed = self._checkpoints.commit(step, order.fill, reuse=reuse)
        self._sound[committed] = True
        problems = self.complete(committed, order.state.progress.best_step)
        seconds = now_s() - order.began_s
        stall_s = seconds if order.stall_s is None else order.stall_s
        return _Saved(checkpoint=committed, seconds=seconds, stall_s=stall_s, amended=order.amend, problems=problems)

    def complete(self, newest: CheckpointDir, best_step: int | None) -> tuple[str, ...]:
        """Point to the newest and the best checkpoint, remove those that the policy does not keep; what of that failed.

        A kill right after a checkpoint was written may have left this undone: a resumed run begins with it.
        """
        problems = []
        best = next((c for c in self._checkpoints.committed() if c.step == best_step), None)
        pointers = {"latest": newest, **({"best": best} if best and best != self._checkpoints.best() else {})}
        for name, checkpoint in pointers.items():
            try:
                self._checkpoints.point(name, checkpoint)
            except OSError as error:
                problems.append(f"checkpoints/{name} could not be written: {error}")
        sound = [checkpoint for checkpoint in self._checkpoints.committed() if self._is_sound(checkpoint)]
        # Only sound ones count: a damaged one must not push the last good one out.
        keep = _steps_to_keep([checkpoint.step for checkpoint in sound], self._policy, self._steps_per_epoch)
        if self._policy.keep_best and best_step is not None:
            keep.add(best_step)
        try:
            self._checkpoints.prune(sound, keep.__contains__)
        except OSError as error:
            problems.append(f"an old checkpoint could not be removed: {error}")
        return tuple(problems)

    def _is_sound(self, checkpoint: CheckpointDir) -> bool:
        """Whether its files are right; those of earlier sessions are read once."""
        if checkpoint not in self._sound:
            self._sound[checkpoint] = not checkpoint.problems()
        return self._sound[checkpoint]


def _steps_to_keep(steps: Sequence[int], policy: Checkpoint, steps_per_epoch: int) -> set[int]:
    """Which checkpoints stay when a new one was written: the last ones, and those at every so many epochs."""
    # In whole steps, as a fraction of an epoch may not be one.
    every = round(policy.keep_every_epochs * steps_per_epoch)
    return {*steps[-policy.keep_last :], *(step for step in steps if every > 0 and step % every == 0)}


def _save(tensors: Tensors, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors of the CPU. Raises OSError, also where safetensors has an error of its own."""
    try:
        with usual_mode(path):
            save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _copy_to_host(files: Mapping[str, Tensors], buffers: TensorFiles | None = None) -> TensorFiles:
    """A copy on the CPU, contiguous whatever the layout; into the buffers of an earlier copy where they fit."""
    return {
        file: {name: _copied(tensor, ((buffers or {}).get(file) or {}).get(name)) for name, tensor in tensors.items()}
        for file, tensors in files.items()
    }


def _copied(tensor: torch.Tensor, buffer: torch.Tensor | None) -> torch.Tensor:
    if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
    return buffer.copy_(tensor.detach())


def _fill_checkpoint(folder: Path, files: TensorFiles, state: CheckpointState) -> None:
    """Write one checkpoint's files from tensors of the CPU."""
    for name, tensors in files.items():
        _save(tensors, folder / name, {"format": "vernier"} if name != "optimizer.safetensors" else None)
    _write_state(folder, state)


def _write_state(folder: Path, state: CheckpointState) -> None:
    """Write state.json, what a checkpoint holds beside tensors."""
    write_json(folder / "state.json", {"schema": SCHEMAS["checkpoint"], **encode(state)})
