"""The run directory on disk: the only code that creates, writes and reads its files.

Everything is either appended and flushed (events, telemetry) or replaced atomically (JSON, checkpoints), so a run that
dies at any moment leaves a directory that can be read. `durable` writes and reads single files, `events` files of one
object per line, `checkpoints` their directories, `run_dir` ties them together; `space` measures what they take on disk,
`cleaning` removes what can go. May import `records`, `clock`, `errors`
and `config.migrations`; never torch, so reports use it too. What is in a record is decided in `records`, what is in a
checkpoint in `engine.training`.
"""

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
