"""The run directory on disk: the only code that creates, writes and reads its files.

Everything is either appended and flushed (events, telemetry) or replaced atomically (JSON, checkpoints), so a run that
dies at any moment leaves a directory that can be read. `durable` writes and reads single files, `events` files of one
object per line, `checkpoints` their directories, `run_dir` ties them together; `space` measures what they take on disk,
`cleaning` removes what can go. May import `records`, `clock`, `errors`
and `config.migrations`; never torch, so reports use it too. What is in a record is decided in `records`, what is in a
checkpoint in `engine.training`. Modules are imported when one of their names is used: every command imports this
package for `backlog`, and few need the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import CheckpointDir, Checkpoints, open_checkpoint, read_checkpoint_state
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
    from .run_dir import RunDir, find_runs, is_locked, read_bench, run_of_checkpoint, unreadable_folders

_HOMES = {
    "CheckpointDir": "checkpoints",
    "Checkpoints": "checkpoints",
    "DamagedFile": "durable",
    "EventLog": "events",
    "NotSynced": "durable",
    "RunDir": "run_dir",
    "find_runs": "run_dir",
    "is_locked": "run_dir",
    "open_checkpoint": "checkpoints",
    "parse_json": "durable",
    "read_bench": "run_dir",
    "read_checkpoint_state": "checkpoints",
    "read_json": "durable",
    "read_object": "durable",
    "read_record": "durable",
    "replaced_atomically": "durable",
    "run_of_checkpoint": "run_dir",
    "unreadable_folders": "run_dir",
    "usual_mode": "durable",
    "write_atomically": "durable",
    "write_json": "durable",
}
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
    "open_checkpoint",
    "parse_json",
    "read_bench",
    "read_checkpoint_state",
    "read_json",
    "read_object",
    "read_record",
    "replaced_atomically",
    "run_of_checkpoint",
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
