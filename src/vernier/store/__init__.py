"""The run directory on disk: the only code that creates, writes and reads its files.

Everything is either appended and flushed (events, telemetry) or replaced atomically (JSON, checkpoints), so a run that
dies at any moment leaves a directory that can be read. `durable` writes and reads single files, `events` files of one
object per line, `checkpoints` their directories, `run_dir` ties them together; `locks` keeps other processes out. May
import `records`, `clock`, `errors` and `config.migrations`; never torch, so reports use it too. What is in a record is
decided in `records`, what is in a checkpoint in `engine.training`. Modules are imported when one of their names is
used: every command imports this package for `backlog`, and few need the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import CheckpointDir, Checkpoints
    from .durable import (
        DamagedFile,
        NotSynced,
        parse_json,
        read_json,
        read_object,
        read_record,
        replaced_atomically,
        usual_mode,
        write_atomically,
        write_json,
    )
    from .events import EventLog
    from .locks import is_locked, lock
    from .run_dir import RunDir, find_runs, unreadable_folders

_MODULES = {
    "checkpoints": "CheckpointDir Checkpoints",
    "durable": "DamagedFile NotSynced parse_json read_json read_object read_record replaced_atomically usual_mode "
    "write_atomically write_json",
    "events": "EventLog",
    "run_dir": "RunDir find_runs unreadable_folders",
    "locks": "is_locked lock",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each name."""

__all__ = [
    "CheckpointDir",
    "Checkpoints",
    "DamagedFile",
    "EventLog",
    "NotSynced",
    "RunDir",
    "find_runs",
    "is_locked",
    "lock",
    "parse_json",
    "read_json",
    "read_object",
    "read_record",
    "replaced_atomically",
    "unreadable_folders",
    "usual_mode",
    "write_atomically",
    "write_json",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value
