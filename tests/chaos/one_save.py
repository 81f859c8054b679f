"""One save as the training does it, without the training: a new checkpoint, the same with a result, an old one removed.

`main` is run by `traced_server` with faults at every operation; the exit code is the last step that was saved.
"""

from pathlib import Path

from vernier.store import Checkpoints

OLD, NEW = 2, 4


def _fill(folder: Path, state: str) -> None:
    (folder / "model.safetensors").write_bytes(b"m" * 5000)
    (folder / "state.json").write_text(state)


def prepare(folder: Path) -> None:
    """A run with an older checkpoint."""
    checkpoints = Checkpoints(folder)
    checkpoints.point("latest", checkpoints.commit(OLD, lambda new: _fill(new, "{}")))


def main(arguments: list[str]) -> int:
    """Save, amend and prune in the folder that is given; the step whose save was completed."""
    checkpoints, saved = Checkpoints(Path(arguments[0])), OLD
    try:
        new = checkpoints.commit(NEW, lambda folder: _fill(folder, "{}"))
        saved = NEW
        new = checkpoints.commit(NEW, lambda folder: (folder / "state.json").write_text('{"result": 1}'), reuse=new)
        checkpoints.point("latest", new)
        checkpoints.prune(checkpoints.committed(), lambda step: step == NEW)
    except OSError as error:  # messages for people
        print(error)
    return saved
