"""Whether every process of a run is still there. One that falls silent ends the run, by name, within a stated time.

Every process writes a beat to the meeting place (a TCPStore) about once a second, from a thread of its own, so a process
that computes for long is still heard and one that is stopped, killed or cut off is not. The first process listens to
all, the others to the first, and all look for a verdict: the reason why the run is over, left by whoever found it.

A process that beats but is stuck in its work is found by what its beat says: how many of the points at which all meet it
has come to. Where it has come to fewer than others and nobody has come to any for `stall_s`, it is named.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from vernier.clock import now_s
from vernier.engine.processes.launch import Topology, record_failure
from vernier.errors import EXIT_FAILED

GRACE_S = 2.0
"""After another process has reported its own failure, so long may this one take to end by itself."""
_VERDICT = "verdict"


@dataclass(frozen=True)
class _Beat:
    """What a process says of itself in a beat."""

    number: int
    step: int
    meetings: int

    @classmethod
    def parse(cls, text: str) -> "_Beat":
        number, step, meetings = map(int, text.split())
        return cls(number, step, meetings)


def identity() -> dict[str, Any]:
    """This process, and the kernel and namespaces (a container's, or a host's) in which its number means something."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    kernel = boot.read_text().strip() if boot.exists() else socket.gethostname()
    spaces = [str(p.readlink()) for kind in ("pid", "net") if (p := Path("/proc/self/ns") / kind).exists()]
    return {"host": socket.gethostname(), "pid": os.getpid(), "kernel": " ".join([kernel, *spaces])}


def open_store(where: Topology, timeout_s: float, *, serve: bool) -> Store:
    """The meeting place of all processes; `serve` it unless the launcher does. What a group before a restart left is not seen."""
    server = serve and where.first and not where.launcher_keeps_store
    store = TCPStore(
        where.address,
        where.port,
        is_master=server,
        wait_for_workers=False,
        timeout=timedelta(seconds=max(timeout_s, 30.0)),
    )
    return PrefixStore(f"vernier/{where.restarts}", store)


class Heartbeat:
    """Beats and listens until closed. `on_verdict` is called with the reason, once, before the process is ended."""

    def __init__(self, where: Topology, timeout_s: float, stall_s: float) -> None:
        self._where, self._timeout_s, self._stall_s = where, timeout_s, stall_s
        self.on_verdict: Callable[[str], None] | None = None
        self._every_s = min(1.0, timeout_s / 5)
        self._store: Store = PrefixStore("heart", open_store(where, timeout_s, serve=False))
        self._done = threading.Event()
        self._ending = threading.Lock()
        self._beats = 0
        self.step = 0
        self.meetings = 0
        """Points at which all processes meet that this one has come to; all come to the same ones in the same order."""
        self._heard_s = now_s()
        """When the meeting place last answered."""
        self._listened_to = range(where.world) if where.first else range(1)
        self._last: dict[int, tuple[str, float]] = {}
        self._moved: tuple[list[int], float] = ([], now_s())
        """Everybody's meetings, and when they last changed."""
        self._store.set(f"who/{where.rank}", json.dumps(identity()))
        self._beat()
        self._threads = [
            threading.Thread(target=run, name=f"vernier-{run.__name__}", daemon=True)
            for run in (self._talk, self._guard)
        ]

    def start(self) -> None:
        """Once every process has made its own: then each has beaten at least once."""
        now = now_s()
        self._last = dict.fromkeys(self._listened_to, ("", now))
        self._moved = ([], now)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._done.set()

    def report(self, message: str) -> None:
        """Tell the other processes that this one ends the run, and why. The first reason stays."""
        self._store.compare_set(_VERDICT, "", message)

    def verdict(self) -> str | None:
        """Why the run is over, if it is."""
        return self._store.get(_VERDICT).decode() if self._store.check([_VERDICT]) else None

    def missing(self, silent_s: float) -> str | None:
        """A sentence about the processes not heard for so long; None when all were."""
        now = now_s()
        gone = [rank for rank, (_, at) in self._last.items() if now - at > silent_s and rank != self._where.rank]
        if not gone:
            return None
        named = ", ".join(self._name(rank) for rank in gone)
        return (
            f"{named} {'has' if len(gone) == 1 else 'have'} not answered for {silent_s:g} s: ended, stopped or cut off"
        )

    def behind(self) -> str | None:
        """A sentence about the processes that the others wait for: those that have come to the fewest meetings."""
        beats = [
            _Beat.parse(b.decode()) for b in self._store.multi_get([f"beat/{r}" for r in range(self._where.world)])
        ]
        least = min(beat.meetings for beat in beats)
        late = [rank for rank, beat in enumerate(beats) if beat.meetings == least]
        if len(late) == len(beats):
            return None
        named = ", ".join(self._name(rank) for rank in late)
        return f"{named} {'has' if len(late) == 1 else 'have'} not come further than step {beats[late[0]].step}"

    def linger(self) -> None:
        """Keep the meeting place open until the others have read why: it ends with the first process."""
        if self._where.first and not self._where.launcher_keeps_store:
            threading.Event().wait(2 * self._every_s)

    # ------------------------------------------------------------------------------------------------ the two threads

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"beat/{self._where.rank}", f"{self._beats} {self.step} {self.meetings}")

    def _talk(self) -> None:
        """Everything that may block on the network."""
        try:
            while not self._done.wait(self._every_s):
                self._beat()
                beats = self._store.multi_get([f"beat/{rank}" for rank in self._listened_to])
                self._heard_s = now = now_s()
                for rank, beat in zip(self._listened_to, beats, strict=True):
                    text = beat.decode()
                    if text != self._last[rank][0]:
                        self._last[rank] = (text, now)
                if silent := self.missing(self._timeout_s):
                    self._kill_neighbours(self._timeout_s)
                    self.report(f"{silent}.")
                if stuck := self._stalled(now):
                    self.report(stuck)
                if reason := self.verdict():
                    self._end(reason, GRACE_S)
        except RuntimeError as error:  # the store's own errors are RuntimeErrors
            self._end(self._store_gone(str(error)), GRACE_S)

    def _stalled(self, now: float) -> str | None:
        """The first process: why the run is over when nobody has come to a meeting for too long and some wait for others."""
        if not self._where.first:
            return None
        meetings = [_Beat.parse(beat).meetings for beat, _ in self._last.values()]
        if meetings != self._moved[0]:
            self._moved = (meetings, now)
        if now - self._moved[1] <= self._stall_s or not (late := self.behind()):
            return None
        return f"{late} and the others have waited for {self._stall_s:g} s: alive, but stuck."

    def _guard(self) -> None:
        """Ends the process when the meeting place itself hangs, and `_talk` with it."""
        while not self._done.wait(self._every_s):
            if now_s() - self._heard_s > self._timeout_s + 2 * self._every_s:
                self._end(self._store_gone(f"no answer for {self._timeout_s:g} s"), 0.0)

    def _store_gone(self, why: str) -> str:
        keeper = "the launcher" if self._where.launcher_keeps_store else "rank 0"
        return (
            f"{keeper} at {self._where.address}:{self._where.port} is not reachable any more ({why.splitlines()[0]})."
        )

    def _end(self, reason: str, grace_s: float) -> None:
        """Leave the process to end by itself for a moment, then end it: the main thread may be waiting for the dead."""
        if self._done.wait(grace_s) or not self._ending.acquire(blocking=False):
            return
        message = f"The run ends ({self._where.where()}): {reason}"
        sys.stderr.write(f"vernier: {message}\n")
        sys.stderr.flush()
        record_failure(message)
        if self.on_verdict is not None:
            self.on_verdict(message)
        os._exit(EXIT_FAILED)

    # --------------------------------------------------------------------------------------------------- who is who

    def _who(self, rank: int) -> dict[str, Any]:
        key = f"who/{rank}"
        return dict(json.loads(self._store.get(key))) if self._store.check([key]) else {"host": "unknown host"}

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._who(rank)['host']}"

    def _kill_neighbours(self, silent_s: float) -> None:
        """A stopped process of this host cannot end by itself, nor can a launcher that waits for it."""
        now, me = now_s(), identity()
        for rank, (_, at) in self._last.items():
            who = self._who(rank)
            if now - at > silent_s and rank != self._where.rank and who.get("kernel") == me["kernel"]:
                try:
                    os.kill(who["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    continue
