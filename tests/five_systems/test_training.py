"""Small trainings that show what the documents say about losses and logs."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done, only_run

FEW = ["--max-steps", "2", "--train-only", "--no-tensorboard", "--set", "limits.log_every_steps=1"]


def test_weight_decay_is_not_in_the_reported_loss(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    first = []
    for decay in ("0", "0.5"):
        out = str(tmp_path / decay)
        done = vernier_here("train", *tiny, *FEW, "--set", f"optim.weight_decay={decay}", "--out", out)
        assert done.code == 0, done.err
        events = [json.loads(line) for line in (only_run(Path(out)) / "events.jsonl").read_text().splitlines()]
        first.append(next(e["loss"] for e in events if e["kind"] == "step"))
    assert first[0] == first[1]


def test_mixup_changes_the_loss_of_the_first_step(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    """The weights and the images are the same: only mixed ones give another loss."""
    first = []
    for mixup in ("0", "0.2"):
        out = str(tmp_path / mixup)
        done = vernier_here("train", *tiny, *FEW, "--set", f"augment.mixup={mixup}", "--out", out)
        assert done.code == 0, done.err
        events = [json.loads(line) for line in (only_run(Path(out)) / "events.jsonl").read_text().splitlines()]
        first.append(next(e["loss"] for e in events if e["kind"] == "step"))
    assert first[0] != first[1]
