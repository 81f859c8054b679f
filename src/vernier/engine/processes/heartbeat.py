"""Detects processes of a run that are dead, stopped, cut off or stuck, and ends the run with a message that names them.

Every process writes a beat to the rendezvous store (a TCPStore) about once per second, from its own thread, so a long
computation is no silence. The first process reads all beats, the others that of the first. Whoever finds the run broken
leaves a verdict in the store: the reason, which ends all processes.

A beat also counts the collectives entered. When nobody has entered one for `stall_s`, the ranks that entered fewest are
stuck, although they are alive.
"""

import _thread
import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from vernier.clock import now_s
from vernier.errors import EXIT_FAILED, EXIT_STOPPED, RunFailed
from vernier.frozen import frozen
from vernier.records.codec import decode, encode
from vernier.references import plain
from vernier.wording import printable

from .launch import Topology, record_failure

GRACE_S = 2.0
"""After another process has reported its failure, this one may take so long to end by itself."""
_LEAVE_S = 5.0
"""A thread that waits for a store which does not answer is left behind after this."""
_ANSWER_S = 30.0
"""A store has at least this long to answer, however short machine.rank_timeout_s is."""
_VERDICT = "verdict"
STOP = "stopped by "
"""A verdict that begins so is no failure: a process got a signal before the first step, and all end with its code."""
_SAME_START_S = 1.0
"""Start times of one process, read twice, may differ by so much when the clock was set."""


@dataclass(frozen=True)
class _Beat:
    """What a process writes about itself."""

    number: int  # differs in every beat, so that an idle process is not taken for a silent one
    step: int
    collectives_entered: int

    @classmethod
    def parse(cls, text: str) -> "_Beat":
        return cls(*map(int, text.split()))


@frozen
class _Identity:
    """A process, and the kernel and namespaces (a host's or a container's) in which its number is valid.

    `started_s` tells it from a later process with the same number.
    """

    host: str = "unknown host"
    pid: int = 0
    kernel: str = ""
    started_s: float = 0.0

    @classmethod
    def of_this_process(cls) -> "_Identity":
        boot = Path("/proc/sys/kernel/random/boot_id")
        kernel = boot.read_text().strip() if boot.exists() else socket.gethostname()
        spaces = [str(p.readlink()) for kind in ("pid", "net") if (p := Path("/proc/self/ns") / kind).exists()]
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            kernel=" ".join([kernel, *spaces]),
            started_s=psutil.Process().create_time(),
        )

    def kill(self) -> None:
        """SIGKILL, unless the process is gone and its number may be another's, or it may not be killed."""
        try:
            if abs(psutil.Process(self.pid).create_time() - self.started_s) < _SAME_START_S:
                os.kill(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError, psutil.Error):
            return  # PermissionError, AccessDenied: the number is that of another user's process now


def open_store(topology: Topology, timeout_s: float, *, serve: bool) -> Store:
    """The rendezvous store; `serve` it unless the launcher does. Keys of a group before a restart are not visible.

    torchrun counts restarts after a failure, but not those because another host has joined.
    """
    patience_s = max(timeout_s, _ANSWER_S)
    answers: queue.SimpleQueue[TCPStore | RuntimeError] = queue.SimpleQueue()

    def connect() -> None:
        try:
            answers.put(
                TCPStore(
                    topology.address,
                    topology.port,
                    is_master=serve and topology.first and not topology.launcher_serves_store,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=patience_s),
                )
            )
        except RuntimeError as error:
            answers.put(error)

    # In a thread: with a program that accepts connections but is no store, TCPStore would wait for ever.
    threading.Thread(target=connect, name="vernier-store", daemon=True).start()
    try:
        store = answers.get(timeout=patience_s + _LEAVE_S)
    except queue.Empty:
        raise RunFailed(
            f"{topology.describe()}: what listens at {topology.rendezvous} does not answer as the rendezvous of a run. "
            "Another program may use that port: set the variable MASTER_PORT to a free one, the same for all processes."
        ) from None
    if isinstance(store, RuntimeError):
        raise store
    return PrefixStore(f"vernier/{topology.restarts}/{topology.world}", store)


class Heartbeat:
    """Beats and watches until closed. `on_verdict` is called with the reason, once, before the process is ended."""

    def __init__(self, topology: Topology, timeout_s: float, stall_s: float) -> None:
        self._topology, self._timeout_s, self._stall_s = topology, timeout_s, stall_s
        self.on_verdict: Callable[[str], None] | None = None
        # At least five beats per timeout: one that is late is not silence.
        self._interval_s = min(1.0, timeout_s / 5)
        # A connection of its own: a call that waits for a key holds up all other calls of its TCPStore object.
        self._store: Store = PrefixStore("heart", open_store(topology, timeout_s, serve=False))
        self._done = threading.Event()
        self._ending = threading.Lock()  # both threads may find a reason, and one of them ends the process
        self._beats = 0
        self.step = 0
        self.collectives_entered = 0
        """All processes enter the same collectives in the same order: a smaller count is a process that is behind."""
        self._store_answered_s = now_s()
        self._watched_ranks = range(topology.world) if topology.first else range(1)
        self._last_beats: dict[int, tuple[str, float]] = {}
        """Per rank: the newest beat, and when it changed."""
        self._progress: tuple[list[int], float] = ([], now_s())
        """Collectives entered by every watched rank, and when any of them changed."""
        self._store.set(f"identity/{topology.rank}", json.dumps(encode(_Identity.of_this_process())))
        self._beat()
        self._threads = [
            threading.Thread(target=run, name=f"vernier-{run.__name__}", daemon=True)
            for run in (self._watch, self._guard)
        ]

    def start(self) -> None:
        """Start watching, once every process has created its heartbeat and so has beaten at least once."""
        now = now_s()
        self._last_beats = dict.fromkeys(self._watched_ranks, ("", now))
        self._progress = ([], now)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop watching and wait for the threads.

        Python aborts a process that ends while one of its threads is in a call of the store: a finished run would fail.
        """
        self._done.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_LEAVE_S)

    def report(self, message: str) -> None:
        """Leave the verdict that ends all processes. The first one stays."""
        # An expected value of "" stands for a key that does not exist.
        self._store.compare_set(_VERDICT, "", message)

    def verdict(self) -> str | None:
        """Why the run is over; None while it is not."""
        # `get` alone would wait for the key.
        return self._store.get(_VERDICT).decode() if self._store.check([_VERDICT]) else None

    def describe_silent(self, silent_s: float) -> str | None:
        """A sentence about the processes without a beat for so long; None when there are none."""
        ranks = self._silent_ranks(silent_s)
        if not ranks:
            return None
        verb = "has" if len(ranks) == 1 else "have"
        return f"{self._names(ranks)} {verb} not answered for {silent_s:g} s: ended, stopped or cut off"

    def describe_laggards(self) -> str | None:
        """A sentence about the processes that entered the fewest collectives; None when all entered as many."""
        texts = self._store.multi_get([f"beat/{r}" for r in range(self._topology.world)])
        beats = [_Beat.parse(text.decode()) for text in texts]
        fewest = min(beat.collectives_entered for beat in beats)
        ranks = [rank for rank, beat in enumerate(beats) if beat.collectives_entered == fewest]
        if len(ranks) == len(beats):
            return None
        verb = "is" if len(ranks) == 1 else "are"
        return f"{self._names(ranks)} {verb} behind the others, at step {beats[ranks[0]].step}"

    def keep_store_readable(self) -> None:
        """The store ends with the first process: wait until the others have read the verdict."""
        if self._topology.first and not self._topology.launcher_serves_store:
            threading.Event().wait(2 * self._interval_s)

    # -------------------------------------------------------------------------------------------------- the two threads

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"beat/{self._topology.rank}", f"{self._beats} {self.step} {self.collectives_entered}")

    def _watch(self) -> None:
        """Everything that may block on the network."""
        try:
            while not self._done.wait(self._interval_s):
                self._beat()
                beats = self._store.multi_get([f"beat/{rank}" for rank in self._watched_ranks])
                self._store_answered_s = now = now_s()
                for rank, beat in zip(self._watched_ranks, beats, strict=True):
                    text = beat.decode()
                    if text != self._last_beats[rank][0]:
                        # By the clock of this process alone: those of other hosts may be off by any amount.
                        self._last_beats[rank] = (text, now)
                if silent := self.describe_silent(self._timeout_s):
                    self._kill_silent_neighbours()
                    self.report(f"{silent}.")
                if stall := self._describe_stall(now):
                    self.report(stall)
                if reason := self.verdict():
                    if reason.startswith(STOP):
                        _thread.interrupt_main(signal.SIGTERM)  # the start is cut short here as it is there
                    self._end_process(reason, GRACE_S)
        except RuntimeError as error:  # the store's own errors are RuntimeErrors
            self._end_process(self._describe_lost_store(str(error)), GRACE_S)

    def _describe_stall(self, now: float) -> str | None:
        """In the first process: who is stuck, when no collective was entered for `stall_s`."""
        if not self._topology.first:
            return None
        counts = [_Beat.parse(beat).collectives_entered for beat, _ in self._last_beats.values()]
        if counts != self._progress[0]:
            self._progress = (counts, now)
        if now - self._progress[1] <= self._stall_s or not (laggards := self.describe_laggards()):
            return None
        return f"{laggards}, who have waited for {self._stall_s:g} s: alive, but stuck."

    def _guard(self) -> None:
        """Ends the process when the store itself hangs, and `_watch` with it."""
        while not self._done.wait(self._interval_s):
            # Later than `_watch`, which names silent ranks: here only the store can be blamed.
            if now_s() - self._store_answered_s > self._timeout_s + 2 * self._interval_s:
                self._end_process(self._describe_lost_store(f"no answer for {self._timeout_s:g} s"), 0.0)

    def _describe_lost_store(self, why: str) -> str:
        server = "the launcher" if self._topology.launcher_serves_store else "rank 0"
        return f"{server} at {self._topology.rendezvous} cannot be reached ({why.splitlines()[0]})."

    def _end_process(self, reason: str, grace_s: float) -> None:
        """Exit, unless the process ends by itself within `grace_s`: the main thread may be waiting for a dead peer."""
        if self._done.wait(grace_s) or not self._ending.acquire(blocking=False):
            return
        message = plain(f"The run ends ({self._topology.describe()}): {reason}")  # no edge is left to word it
        if reason.startswith(STOP):
            os._exit(EXIT_STOPPED)  # whoever stopped first has said it
        with contextlib.suppress(OSError):  # a full disk must not keep a broken run alive
            sys.stderr.write(f"vernier: {printable(message)}\n")
            sys.stderr.flush()
        record_failure(message)
        if self.on_verdict is not None:
            with contextlib.suppress(OSError):
                self.on_verdict(message)
        # Not sys.exit: this is not the main thread, which may be in a collective that never returns.
        os._exit(EXIT_FAILED)

    # ------------------------------------------------------------------------------------------------- other processes

    def _silent_ranks(self, silent_s: float) -> list[int]:
        now, own_rank = now_s(), self._topology.rank
        return [rank for rank, (_, at) in self._last_beats.items() if now - at > silent_s and rank != own_rank]

    def _identity(self, rank: int) -> _Identity:
        key = f"identity/{rank}"
        return decode(_Identity, json.loads(self._store.get(key))) if self._store.check([key]) else _Identity()

    def _names(self, ranks: list[int]) -> str:
        return ", ".join(f"rank {rank} on {self._identity(rank).host}" for rank in ranks)

    def _kill_silent_neighbours(self) -> None:
        """A stopped process on this host cannot end by itself, nor can a launcher that waits for it."""
        kernel = _Identity.of_this_process().kernel
        for rank in self._silent_ranks(self._timeout_s):
            peer = self._identity(rank)
            if peer.kernel == kernel:
                peer.kill()
