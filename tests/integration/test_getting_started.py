"""The walk of docs/getting-started.md, from an installation to a report of one's own photographs: every command, in
order, on little data and for a few steps."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPO, TINY, Done
from tests.documented import fences
from vernier.data.shapes import ShapesSpec, make_shapes

PAGE = REPO / "docs" / "getting-started.md"
SET_UP = ("git clone", "make install", "source .venv")  # what the CI does before any test
RUNS = {"runs/RUN": 0, "runs/RUN_A": 0, "runs/RUN_B": 1}
"""Which of the runs, in the order they were made, a placeholder stands for."""
FEWER = {
    "train": ["--max-steps", "2", "--max-eval-steps", "1", *TINY],
    "finetune": [  # published weights would have to be fetched
        *("--weights", "none", "--model", "resnet8-small", "--image-px", "32", "--epochs", "1", "--global-batch", "16"),
        *("--set", "machine.threads=1"),
    ],
}


def commands() -> list[str]:
    """The lines of the page's `sh` blocks, continued ones joined."""
    blocks = [fence for fence in fences(PAGE) if fence.language == "sh"]
    return [line.strip() for block in blocks for _, line in block.lines() if line.strip()]


def test_every_command_of_the_page_runs(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    ran = []
    for line in commands():
        if line.startswith(SET_UP):
            continue
        words = shlex.split(line, comments=True)
        assert words[0].rpartition("/")[2] == "vernier", line
        target = Path(words[words.index(">") + 1]) if ">" in words else None
        arguments = words[1 : words.index(">")] if target else words[1:]
        arguments = [str(sorted(runs.iterdir())[RUNS[word]]) if word in RUNS else word for word in arguments]
        more = list(FEWER.get(arguments[0], []))
        if "ssd-shapes-quick" in arguments:
            boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=24, val=10, size_px=96, seed=5))
            more = ["--smoke", "--data", str(boxes), "--set", "machine.threads=1"]
        elif arguments[0] == "train" and "--data" not in arguments:
            more += ["--data", str(shapes)]
        done = vernier_here(*arguments, *more)
        assert done.code == 0, f"{line}\n{done.err}"
        if target is not None:
            target.write_text(done.out)
        ran.append(arguments[0])
    assert {"doctor", "train", "eval", "predict", "export", "finetune", "report", "compare"} <= set(ran)
    assert list((tmp_path / "detectors").glob("*/predictions/detections.json"))
    assert (tmp_path / "model_card.md").exists()
    (page,) = (tmp_path / "own").glob("*/report.html")
    assert "photos" in page.read_text(encoding="utf-8")
    assert (tmp_path / "predicted" / "sheet.png").exists()
