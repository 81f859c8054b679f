"""Checkpoint directories: each appears whole or not at all, with a hash of every file.

What goes into one is `engine.training.checkpoints.contents`'s business.
"""

import contextlib
import errno
import os
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
    entries,
    read_object,
    read_record,
    remove_folder,
    remove_leftover,
    sha256_of_file,
    sync_to_disk,
    temporaries,
    write_atomically,
    write_json,
)

# Eight digits or more, so that names sort by step.
STEP_DIR = re.compile(r"^step-(\d{8,})$")


@frozen
class _FileEntry:
    """One file of a checkpoint, as its manifest lists it."""

    bytes: int
    sha256: str


@frozen
class _Manifest:
    """manifest.json: every file of a checkpoint with its size and hash."""

    schema: int
    step: int
    files: dict[str, _FileEntry]


@dataclass(frozen=True, order=True)
class CheckpointDir:
    """A committed checkpoint on disk."""

    step: int
    path: Path

    @classmethod
    def open(cls, path: Path) -> "CheckpointDir":
        """A bare checkpoint directory, checked."""
        # A checkpoint that was copied elsewhere may have another name; its state has the step, too.
        match = STEP_DIR.match(path.name)
        try:
            step = int(match[1]) if match else int(read_object(path / "state.json")["step"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} is not a checkpoint: it has no readable state.json.") from None
        checkpoint = cls(step, path)
        if problems := checkpoint.problems():
            raise ConfigError(
                f"The checkpoint {path} is damaged ({'; '.join(problems)}). Use an older one of the same run."
            )
        return checkpoint

    def problems(self, *, hashes: bool = True) -> list[str]:
        """What is wrong with its files; empty when every hash in the manifest agrees.

        Without `hashes` only names and sizes are compared, which is fast.
        """
        try:
            manifest = self.manifest()
        except (OSError, DamagedFile) as error:
            return [f"manifest.json: {error}"]
        if manifest.schema > SCHEMAS["checkpoint"]:
            return [f"manifest.json: it was written by a newer version of Vernier (schema {manifest.schema})"]
        if not manifest.files:
            return ["manifest.json: it lists no files"]
        if manifest.step != self.step:
            return [f"manifest.json: it is the one of step {manifest.step}"]
        files = manifest.files.items()
        return [f"{name}: {why}" for name, entry in files if (why := _file_problem(self.path / name, entry, hashes))]

    def read_state(self) -> dict[str, Any]:
        """state.json as this version writes it, migrated where an older one wrote it."""
        path = self.path / "state.json"
        return migrated("checkpoint", read_object(path), path)

    def manifest(self) -> _Manifest:
        """Its list of files. Raises FileNotFoundError or DamagedFile."""
        return read_record(_Manifest, self.path / "manifest.json")


def _file_problem(path: Path, entry: _FileEntry, hashes: bool) -> str:
    try:
        if not path.is_file():
            return "missing"
        if path.stat().st_size != entry.bytes:
            return f"{path.stat().st_size} bytes instead of {entry.bytes}"
        return "" if not hashes or sha256_of_file(path) == entry.sha256 else "content does not match its hash"
    except (OSError, ValueError) as error:  # a medium that cannot be read; a name that no file can have
        return str(error)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints/ folder of a run."""

    folder: Path

    def committed(self) -> list[CheckpointDir]:
        """Oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(CheckpointDir(int(m[1]), p) for p in entries(self.folder) if (m := STEP_DIR.match(p.name)))

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
        # Without the pointer there is no best one, and every checkpoint can still be used.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            name = (self.folder / "best").read_text(encoding="utf-8").strip()
            return next((c for c in self.committed() if c.path.name == name), None)
        return None

    def commit(self, step: int, fill: Callable[[Path], None], *, reuse: CheckpointDir | None = None) -> CheckpointDir:
        """Write a checkpoint with `fill` in a hidden directory, hash and sync it, then rename it to its final name.

        Files of `reuse` that `fill` does not write are taken over unchanged, without copying where links are possible.
        """
        final = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".writing-{final.name}"
        try:
            # What a killed process was writing has the same name.
            self.tidy()
            temporary.mkdir(parents=True)
            fill(temporary)
            _write_manifest(temporary, step, reuse)
            if final.exists():
                # Out of the way, not removed: until the new one has its name, a kill must leave the old one to restore.
                final.rename(self.folder / f".replaced-{final.name}")
            temporary.rename(final)
            # The renames are in the folder; without this a power cut could undo them after training has gone on.
            sync_to_disk(self.folder)
        except (OSError, DamagedFile) as error:
            with contextlib.suppress(OSError):
                self.tidy()
            number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (errno.EIO, None)
            raise OSError(number, f"cannot write checkpoint {final}: {reason or error}") from error
        with contextlib.suppress(OSError):  # what cannot be removed now is removed by the next one
            self.tidy()
        return CheckpointDir(step, final)

    def point(self, name: str, checkpoint: CheckpointDir) -> None:
        """Make `latest` or `best` name a checkpoint. `latest` is for people and scripts: Vernier looks at folders."""
        write_atomically(self.folder / name, checkpoint.path.name + "\n")

    def tidy(self) -> None:
        """Finish what a crash interrupted: restore a checkpoint that was being replaced, remove half-written files.

        Only while nobody else writes to the run.
        """
        for replaced in self.folder.glob(".replaced-*"):
            if not (original := self._original_of(replaced)).exists():
                replaced.rename(original)
        for leftover in [*self.folder.glob(".*-step-*"), *temporaries(self.folder)]:
            remove_leftover(leftover)

    def _original_of(self, replaced: Path) -> Path:
        return self.folder / replaced.name.removeprefix(".replaced-")

    def remove_after(self, step: int) -> None:
        """Remove every checkpoint of a later step."""
        for later in self.committed():
            if later.step > step:
                remove_folder(later.path)

    def prune(self, sound: Sequence[CheckpointDir], keep: Callable[[int], bool]) -> None:
        """Remove every one of these whose step `keep` rejects; `best` and the last of them always stay.

        Give only checkpoints whose files are right: a damaged one must not stand for the newest that is kept.
        """
        # Read once more from disk: the pointer was written a moment ago and is what a user sees.
        best = self.best()
        for old in sound[:-1]:
            if not keep(old.step) and (best is None or old.step != best.step):
                remove_folder(old.path)


def _write_manifest(folder: Path, step: int, reuse: CheckpointDir | None) -> None:
    files = {}
    for path in entries(folder):
        # Synced before its hash is noted: a manifest must not promise what only the page cache has.
        sync_to_disk(path)
        files[path.name] = _FileEntry(bytes=path.stat().st_size, sha256=sha256_of_file(path))
    for name, entry in reuse.manifest().files.items() if reuse is not None else ():
        if name not in files:
            assert reuse is not None
            _take_over(reuse.path / name, folder / name)
            files[name] = entry
    write_json(folder / "manifest.json", encode(_Manifest(schema=SCHEMAS["checkpoint"], step=step, files=files)))


def _take_over(path: Path, copy: Path) -> None:
    """The same file under another name; copied where the file system has no links."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copyfile(path, copy)
        sync_to_disk(copy)
