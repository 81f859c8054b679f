"""What a disk may hold after a power cut: replays a recorded trace, and enumerates the states of every moment.

The rules are those of POSIX, stricter than any one file system:

- The data of a file is durable once the file was synced after it was written. Until then each write may be kept, lost,
  torn at a sector or page boundary, or be zeros of the right length (size updated, blocks not written).
- A change of a folder (an entry that was made, renamed, removed or linked) is durable once that folder was synced.
  Until then each change may be kept or lost, also a later one kept and an earlier one lost. A rename within a folder is
  one change; that an entry is lost says nothing about the folder's other entries, nor about the data of the file.

Journalling file systems keep changes in their order: those states are visited first. Not modelled: disks that lose
what they confirmed, and damage to what had been durable before.
"""

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .tracing import Record

SECTOR, PAGE = 512, 4096
EXHAUSTIVE = 6
"""Up to this many pending changes of folders, all subsets are visited."""
SAMPLES = 24
"""Random states per moment beyond those."""

LONG = 4
"""Writes of which each one is drawn for."""

Tree = dict[str, bytes | None]
"""Path below the root -> content; None for a folder."""


@dataclass(frozen=True)
class Change:
    """An update of entries of one folder: name -> node, None where the entry is removed."""

    number: int
    folder: int
    entries: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Write:
    offset: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Truncate:
    size: int


@dataclass
class Folder:
    """A folder as programs see it, as it was last synced, and the changes in between."""

    current: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


@dataclass
class File:
    current: bytes = b""
    durable: bytes = b""
    pending: list[Write | Truncate] = field(default_factory=list)


class Disk:
    """A folder tree with everything that is not durable yet."""

    def __init__(self, root: Path) -> None:
        """Begin with what is below `root`, all of it durable."""
        self.root = str(root)
        self.nodes: list[Folder | File] = [Folder()]
        self._changes = 0
        self._load(root, 0)

    def _load(self, path: Path, node: int) -> None:
        for entry in sorted(path.iterdir()):
            folder = self._folder(node)
            child = self._new(Folder() if entry.is_dir() else File(entry.read_bytes(), entry.read_bytes()))
            folder.current[entry.name] = folder.durable[entry.name] = child
            if entry.is_dir():
                self._load(entry, child)

    def _new(self, node: Folder | File) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _folder(self, node: int) -> Folder:
        folder = self.nodes[node]
        assert isinstance(folder, Folder)
        return folder

    # ------------------------------------------------------------------------------------------------------- replay

    def _find(self, path: str) -> int | None:
        """The node of an absolute path, as programs see it."""
        node = 0
        for name in PurePosixPath(path).relative_to(self.root).parts:
            folder = self.nodes[node]
            child = folder.current.get(name) if isinstance(folder, Folder) else None
            if child is None:
                return None
            node = child
        return node

    def _change(self, path: str, *entries: tuple[str, int | None]) -> None:
        parent = self._find(str(PurePosixPath(path).parent))
        assert parent is not None, path
        folder = self._folder(parent)
        self._changes += 1
        folder.pending.append(Change(self._changes, parent, entries))
        _update(folder.current, folder.pending[-1])

    def _data(self, path: str, change: Write | Truncate) -> None:
        node = self._find(path)
        if node is None:
            assert path.endswith(" (deleted)"), path  # a file without a name: nobody will find it
            return
        file = self.nodes[node]
        assert isinstance(file, File), path
        file.pending.append(change)
        file.current = _after(file.current, [change])

    def _open(self, record: Record) -> None:
        if self._find(record.path) is None:
            self._change(record.path, (PurePosixPath(record.path).name, self._new(File())))
        elif record.offset & os.O_TRUNC:
            self._data(record.path, Truncate(0))

    def _rename(self, record: Record) -> None:
        old, new = PurePosixPath(record.path), PurePosixPath(record.other)
        assert old.parent == new.parent, "a rename between folders is not modelled"
        self._change(record.path, (old.name, None), (new.name, self._find(record.path)))

    def _sync_node(self, node: Folder | File) -> None:
        if isinstance(node, Folder):
            node.durable = dict(node.current)
        else:
            node.durable = node.current
        node.pending = []

    def replay(self, record: Record) -> bool:
        """Carry out an operation that succeeded; whether it changed what the disk may hold."""
        name = PurePosixPath(record.path).name
        match record.operation:
            case "open-write":
                before = self._changes
                self._open(record)
                return self._changes > before or bool(record.offset & os.O_TRUNC)
            case "write":
                self._data(record.path, Write(record.offset, record.content))
            case "truncate":
                self._data(record.path, Truncate(record.offset))
            case "rename":
                self._rename(record)
            case "link":
                self._change(record.other, (PurePosixPath(record.other).name, self._find(record.path)))
            case "mkdir":
                self._change(record.path, (name, self._new(Folder())))
            case "unlink" | "rmdir":
                self._change(record.path, (name, None))
            case "sync" if record.other:  # sync(2)
                for node in self.nodes:
                    self._sync_node(node)
            case "sync":
                if (found := self._find(record.path)) is not None:
                    self._sync_node(self.nodes[found])
            case "other":
                raise AssertionError(f"the model knows no such operation: {record}")
            case _:
                return False
        return True

    def current(self) -> Tree:
        """What programs see."""
        contents = {number: node.current for number, node in enumerate(self.nodes) if isinstance(node, File)}
        return self.tree({change.number for change in self.pending_changes()}, contents)

    # ------------------------------------------------------------------------------------------------------- states

    def _reachable(self) -> Iterator[int]:
        """Nodes that some state has a name for."""
        seen, queue = {0}, [0]
        while queue:
            yield (number := queue.pop())
            node = self.nodes[number]
            if isinstance(node, Folder):
                entries = [*node.durable.values(), *(child for c in node.pending for _, child in c.entries)]
                new = {child for child in entries if child is not None} - seen
                seen |= new
                queue += sorted(new)

    def pending_changes(self) -> list[Change]:
        """Changes of folders that a power cut may lose, in their order."""
        folders = [node for number in self._reachable() if isinstance(node := self.nodes[number], Folder)]
        return sorted((change for folder in folders for change in folder.pending), key=lambda change: change.number)

    def pending_files(self) -> list[int]:
        """Files with data that a power cut may lose."""
        return sorted(number for number in self._reachable() if _is_dirty(self.nodes[number]))

    def file(self, number: int) -> File:
        file = self.nodes[number]
        assert isinstance(file, File)
        return file

    def tree(self, changes: set[int], contents: dict[int, bytes]) -> Tree:
        """The state in which these changes of folders were kept, and these files have this content."""
        tree: Tree = {}
        self._add_to(tree, 0, "", changes, contents)
        return tree

    def _add_to(self, tree: Tree, node: int, path: str, changes: set[int], contents: dict[int, bytes]) -> None:
        folder = self.nodes[node]
        if isinstance(folder, File):
            tree[path] = contents.get(node, folder.durable)
            return
        if path:
            tree[path] = None
        entries = dict(folder.durable)
        for change in folder.pending:
            if change.number in changes:
                _update(entries, change)
        for name, child in entries.items():
            self._add_to(tree, child, f"{path}/{name}" if path else name, changes, contents)


def _update(entries: dict[str, int], change: Change) -> None:
    for name, node in change.entries:
        entries.pop(name, None)
        if node is not None:
            entries[name] = node


def _is_dirty(node: Folder | File) -> bool:
    return isinstance(node, File) and bool(node.pending)


# ------------------------------------------------------------------------------------------------------ file contents


def _after(content: bytes, changes: Sequence[Write | Truncate]) -> bytes:
    """The content after some changes."""
    buffer = bytearray(content)
    for change in changes:
        if isinstance(change, Truncate):
            del buffer[change.size :]
            buffer.extend(bytes(change.size - len(buffer)))
        else:
            buffer.extend(bytes(max(0, change.offset - len(buffer))))
            buffer[change.offset : change.offset + len(change.content)] = change.content
    return bytes(buffer)


def _zeros(file: File) -> bytes:
    """Sizes are updated, the blocks of the new data are not written."""
    writes = [Write(c.offset, bytes(len(c.content))) if isinstance(c, Write) else c for c in file.pending]
    return _after(file.durable, writes)


def _torn_write(write: Write, dice: random.Random) -> list[Write]:
    """What is left of a write: some of its sectors or pages, mostly the first ones."""
    unit = dice.choice((SECTOR, PAGE))
    first = write.offset // unit * unit
    last = write.offset + len(write.content)
    pieces = []
    for begin in range(first, last, unit):
        a, b = max(begin, write.offset), min(begin + unit, last)
        pieces.append(Write(a, write.content[a - write.offset : b - write.offset]))
    if dice.random() < 0.5:
        return pieces[: dice.randrange(len(pieces) + 1)]
    return [piece for piece in pieces if dice.random() < 0.7]


def _torn(file: File, dice: random.Random) -> bytes:
    """Some of the pending writes, some of them in part. Of a long log the end is torn: not every line is drawn for."""
    begin = dice.randrange(len(file.pending)) if len(file.pending) > LONG else 0
    kept = list(file.pending[:begin])
    for change in file.pending[begin : begin + LONG]:
        if isinstance(change, Truncate):
            kept += [change] if dice.random() < 0.7 else []
        else:
            kept += dice.choice(([change], _torn_write(change, dice), _torn_write(change, dice), []))
    return _after(file.durable, kept)


def _content(file: File, fate: str, dice: random.Random) -> bytes:
    match fate:
        case "kept":
            return file.current
        case "lost":
            return file.durable
        case "zeros":
            return _zeros(file)
    return _torn(file, dice)


FATES = ("kept", "lost", "zeros", "torn")


# ------------------------------------------------------------------------------------------------------------- states


def crash_states(disk: Disk, dice: random.Random) -> Iterator[Tree]:
    """States the disk may hold if the power is cut now; some more than once."""
    changes, files = [change.number for change in disk.pending_changes()], disk.pending_files()

    def state(subset: Sequence[int], fate: str) -> Tree:
        fates = {number: dice.choice(FATES) if fate == "mixed" else fate for number in files}
        contents = {number: _content(disk.file(number), each, dice) for number, each in fates.items()}
        return disk.tree(set(subset), contents)

    for length in range(len(changes) + 1):  # as a journal keeps them
        for fate in ("kept", "lost", "zeros", "mixed"):
            yield state(changes[:length], fate)
    if len(changes) <= EXHAUSTIVE:
        for bits in range(1 << len(changes)):
            subset = [number for place, number in enumerate(changes) if bits >> place & 1]
            for fate in ("kept", "lost", "mixed"):
                yield state(subset, fate)
    for _ in range(SAMPLES):
        share = dice.choice((0.2, 0.5, 0.8, 0.95))
        yield state([number for number in changes if dice.random() < share], "mixed")


def fingerprint(tree: Tree) -> bytes:
    """The same for equal states."""
    digest = hashlib.blake2b(digest_size=16)
    for path, content in sorted(tree.items()):
        # A bytes object computes its hash once, and most of them are in many states.
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0{hash(content)}\0".encode())
    return digest.digest()
