"""A run directory and the content of a checkpoint, as small as they can be."""

from pathlib import Path

from vernier.store import RunDir


def fill_checkpoint(folder: Path) -> None:
    (folder / "model.safetensors").write_text("weights")
    (folder / "state.json").write_text('{"step": 1}')


def make_run(tmp_path: Path) -> RunDir:
    run = RunDir.create(tmp_path, "a run/with odd: name")
    run.write_config({})
    return run
