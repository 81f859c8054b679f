"""Checkpoint directories: each appears whole or not at all, with a hash of every file.

What goes into one is `engine.training.checkpoint`'s business.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vernier.config.migrations import SCHEMAS, migrated
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.codec import encode

from .durable import (
    DamagedFile,
    read_object,
    read_record,
    sha256_of_file,
    sync_to_disk,
    write_atomically,
    write_json,
)

STEP_DIR = re.compile(r"^step-(\d{8,})$")


@frozen
class FileEntry:
    """One file of a checkpoint, as its manifest lists it."""

    bytes: int
    sha256: str


@frozen
class Manifest:
    """manifest.json: every file of a checkpoint with its size and hash."""

    schema: int
    step: int
    files: dict[str, FileEntry]


@dataclass(frozen=True, order=True)
class CheckpointDir:
    """A committed checkpoint on disk."""

    step: int
    path: Path

    def problems(self) -> list[str]:
        """What is wrong with its files; empty when every hash in the manifest agrees."""
        try:
            files = read_record(Manifest, self.path / "manifest.json").files
        except (OSError, DamagedFile) as error:
            return [f"manifest.json: {error}"]
        if not files:
            return ["manifest.json: it lists no files"]
        return [f"{name}: {why}" for name, entry in files.items() if (why := _file_problem(self.path / name, entry))]


def _file_problem(path: Path, entry: FileEntry) -> str:
    if not path.is_file():
        return "missing"
    if path.stat().st_size != entry.bytes:
        return f"{path.stat().st_size} bytes instead of {entry.bytes}"
    return "" if sha256_of_file(path) == entry.sha256 else "content does not match its hash"


def open_checkpoint(path: Path) -> CheckpointDir:
    """A bare checkpoint directory, checked."""
    match = STEP_DIR.match(path.name)
    try:
        step = int(match[1]) if match else int(read_object(path / "state.json")["step"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a checkpoint: it has no readable state.json.") from None
    checkpoint = CheckpointDir(step, path)
    if problems := checkpoint.problems():
        raise ConfigError(
            f"The checkpoint {path} is damaged ({'; '.join(problems)}). Use an older one of the same run."
        )
    return checkpoint


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints/ folder of a run."""

    folder: Path

    def committed(self) -> list[CheckpointDir]:
        """Oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(CheckpointDir(int(m[1]), p) for p in self.folder.iterdir() if (m := STEP_DIR.match(p.name)))

    def newest(self, on_damage: Callable[[CheckpointDir, list[str]], None] | None = None) -> CheckpointDir | None:
        """The newest checkpoint whose hashes agree; damaged ones are reported and skipped."""
        for candidate in reversed(self.committed()):
            problems = candidate.problems()
            if not problems:
                return candidate
            if on_damage:
                on_damage(candidate, problems)
        return None

    def best(self) -> CheckpointDir | None:
        """The one that the `best` file names, where it still exists."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            name = (self.folder / "best").read_text(encoding="utf-8").strip()
            return next((c for c in self.committed() if c.path.name == name), None)
        return None

    def commit(self, step: int, fill: Callable[[Path], None], *, best: bool) -> CheckpointDir:
        """Write a checkpoint with `fill` in a hidden directory, hash and sync it, then rename it to its final name."""
        final = self.folder / f"step-{step:08d}"
        self.tidy()
        temporary = self.folder / f".writing-{final.name}"
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            _write_manifest(temporary, step)
            if final.exists():
                final.rename(self.folder / f".replaced-{final.name}")
            temporary.rename(final)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise OSError(error.errno, f"cannot write checkpoint {final}: {error.strerror}") from error
        sync_to_disk(self.folder)
        # For people and scripts; Vernier looks at the folders.
        write_atomically(self.folder / "latest", final.name + "\n")
        if best:
            write_atomically(self.folder / "best", final.name + "\n")
        self.tidy()
        return CheckpointDir(step, final)

    def tidy(self) -> None:
        """Finish what a crash interrupted: restore a checkpoint that was being replaced, remove half-written ones."""
        for replaced in self.folder.glob(".replaced-*"):
            original = self.folder / replaced.name.removeprefix(".replaced-")
            if not original.exists():
                replaced.rename(original)
        for leftover in self.folder.glob(".*-step-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def prune(self, sound: Sequence[CheckpointDir], keep: Callable[[int], bool]) -> None:
        """Remove every one of these whose step `keep` rejects; `best` and the last of them always stay.

        Give only checkpoints whose files are right: a damaged one must not stand for the newest that is kept.
        """
        best = self.best()
        for old in sound[:-1]:
            if not keep(old.step) and (best is None or old.step != best.step):
                doomed = old.path.with_name(f".deleting-{old.path.name}")
                old.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)


def _write_manifest(folder: Path, step: int) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        sync_to_disk(path)
        files[path.name] = FileEntry(bytes=path.stat().st_size, sha256=sha256_of_file(path))
    write_json(folder / "manifest.json", encode(Manifest(schema=SCHEMAS["checkpoint"], step=step, files=files)))


def read_checkpoint_state(checkpoint: CheckpointDir) -> dict[str, Any]:
    """state.json as this version writes it, migrated where an older one wrote it."""
    path = checkpoint.path / "state.json"
    return migrated("checkpoint", read_object(path), path)
