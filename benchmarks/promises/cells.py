"""Figures of simulated cells, kept in a file, so that a run that was cut short is continued.

A cell has a name, its number of cases and its own random numbers, which follow from its name alone: it has the same
figures whatever ran before it. One line of JSON per finished cell is appended to the file. A cell that is there with
enough cases, the same seed and the same code is not simulated again; when the time is over, one with fewer cases counts
too, and says how many it has.
"""

import hashlib
import json
import math
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import vernier

Rng = np.random.Generator
Figures = dict[str, Any]
_SOURCE = Path(vernier.__file__).parent


ALL_CASES = 4000


def slack(cases: int, share: float = 0.05) -> float:
    """What chance adds to a figure of so few cases: three standard errors. The bands themselves are for ALL_CASES."""
    return 0.0 if cases >= ALL_CASES else 3 * math.sqrt(share * (1 - share) / cases)


class OutOfTimeError(Exception):
    """A cell has no figures, and there is no time for it."""


class Cells:
    """The cells of one subject.

    `ends_s`: no cell begins after this time of `time.monotonic`. `match`: cells that are there with fewer cases are
    simulated again only if this regular expression is in their name.
    """

    def __init__(
        self, subject: str, code: str, seed: int, kept: Path | None = None, ends_s: float = np.inf, match: str = ""
    ) -> None:
        self.subject, self.code, self.seed, self.kept = subject, code, seed, kept
        self.ends_s, self.match = ends_s, match
        self.simulated, self.seconds = 0, 0.0
        rows = list(_rows(kept)) if kept is not None and kept.exists() else []
        self.done = {
            row["cell"]: row for row in rows if (row["subject"], row["seed"], row["code"]) == (subject, seed, code)
        }

    def __call__(self, name: str, cases: int, run: Callable[[Rng, int], Figures | float]) -> Figures:
        """The figures of a cell with their number of cases `n`; `run` simulates that many."""
        row = self.done.get(name)
        if row is None or (row["n"] < cases and re.search(self.match, name) and time.monotonic() < self.ends_s):
            if time.monotonic() >= self.ends_s:
                raise OutOfTimeError(f"{self.subject}: {name}")
            began = time.process_time()
            value = run(np.random.default_rng([self.seed, zlib.crc32(f"{self.subject}: {name}".encode())]), cases)
            figures = value if isinstance(value, dict) else {"share": value}
            seconds = round(time.process_time() - began, 2)
            row = {"subject": self.subject, "cell": name, "n": cases, "figures": figures, "seconds": seconds}
            row |= {"seed": self.seed, "code": self.code, "date": time.strftime("%Y-%m-%d")}
            self.done[name] = row
            self.simulated += 1
            if self.kept is not None:
                with self.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        self.seconds += row["seconds"]
        return {**row["figures"], "n": row["n"]}


def _rows(kept: Path) -> Iterator[Figures]:
    for line in kept.read_text("utf-8").splitlines():
        with suppress(ValueError):  # a line that a kill cut off
            yield json.loads(line)


def digest(subject: Path, parts: tuple[str, ...]) -> str:
    """A digest of the subject's own file and of the product's files that it measures."""
    files = [subject, *(path for part in parts for path in sorted(_SOURCE.glob(part)))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
