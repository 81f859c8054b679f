"""What pages are made of in these tests: a real small training run, made once, and others written through the store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import TINY, only_run
from vernier.cli import main
from vernier.data.decoding.decode import encode_thumbnail
from vernier.report.page.build import Page, build
from vernier.report.page.collect import collect
from vernier.store import RunDir

EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"


@pytest.fixture(scope="session")
def trained(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, really trained and evaluated."""
    out = tmp_path_factory.mktemp("trained")
    more = ["--epochs", "2", "--set", "eval.every_epochs=1", "--set", "limits.log_every_steps=2"]
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY, *more]) == 0
    return only_run(out)


@pytest.fixture
def page_of() -> Callable[..., Page]:
    return lambda *paths: build(collect([Path(p) for p in paths]))


STEP = {
    "kind": "step", "step": 110, "epoch": 1.1, "loss": 0.25, "lr": 0.1, "samples": 320, "step_s": [0.1], "wait_s": [0.0],
}  # fmt: skip
"""News of a run whose last step so far was the hundredth."""


def emit(run: RunDir, *events: dict[str, Any]) -> None:
    log = run.events()
    for event in events:
        log.emit(event)
    log.close()


def detector(out: Path, name: str = "detector", evil: str = "") -> Path:
    """A detector's run as the engine writes one: figures, classes, examples with boxes."""
    run = RunDir.create(out, name)
    run.write_config({"recipe": {"name": name, "model": {"name": "ssd-small"}, "data": {"source": "shapes"}}})
    run.write_environment({"host": "here"})
    classes = [
        {"category_id": i, "name": n, "AP": 0.5 - i / 10, "AP50": 0.7} for i, n in enumerate(["disc", f"star{evil}"])
    ]
    figures = dict.fromkeys(("AP", "AP50", "AP75", "APs", "APm", "AR1", "AR10", "AR100", "ARs", "ARm"), 0.4)
    step = {
        "kind": "step",
        "step": 10,
        "epoch": 1.0,
        "loss": 3.0,
        "lr": 0.1,
        "samples": 80,
        "step_s": [0.1] * 10,
        "wait_s": [0.0] * 10,
    }
    found = {**figures, "APl": None, "ARl": None, "samples": 10, "detections": 20, "classes": classes}
    emit(
        run,
        {"kind": "start", "world": 1, "resumed_from": None},
        step,
        {"kind": "eval", "step": 10, "epoch": 1.0, "seconds": 1.0, **found},
    )
    jpeg = encode_thumbnail(np.full((8, 8, 3), 120, np.uint8), 8)
    box = {"box": [0.1, 0.2, 0.6, 0.7], "class": f"star{evil}"}
    run.write_prediction("examples", [
        {"image": f"/data/{evil}.jpg", "width": 8, "height": 8, "jpeg": jpeg, "truth": [box], "found": [{**box, "score": 0.9}, {**box, "score": 0.1}]}
    ])  # fmt: skip
    run.write_status("finished", summary={"result": found, "spent_s": {"compute": 1.0, "total": 1.0}})
    return run.path


def bench_run(out: Path) -> Path:
    """A benchmark's result: two batches, one that did not fit, and latencies."""
    run = RunDir.create(out, "bench-train")
    run.write_config({"recipe": {"name": "bench-train"}})
    run.write_environment({"host": "here"})
    rate = {"low": None, "high": None, "basis": "2 processes"}

    def row(batch: int, value: float, **more: Any) -> dict[str, Any]:
        step = {"median": 0.1, "p5": 0.09, "p95": 0.12, "p99": 0.13, "cv": 0.05}
        return {
            "arm": f"batch={batch}", "batch": batch, "precision": "fp32", "mode": "eager", "procs": 1, "status": "ok", "rounds": 2, "devices": 1,
            "images_per_s_total": {**rate, "value": value, "low": 0.9 * value, "high": 1.1 * value}, "images_per_s_per_device": {**rate, "value": value},
            "data_wait_share": 0.01, "verdict": "compute-bound", "step_s": step, "phases": {"steps": 5, "seconds": {"forward": 0.06, "backward": 0.04}},
            "noise": [], "peak_memory_bytes": 2**28, "flops": None, "joules_per_image": None, **more,
        }  # fmt: skip

    latency = {"percentiles": {"p50": {"value": 0.01}, "p99": {"value": 0.02}}, "mean": 0.011, "n": 3}
    rows = [
        row(8, 80.0),
        row(32, 110.0, noise=["other programs used 1.00 cores"]),
        row(1, 70.0, scenario="single-stream", latency_s=latency),
        {"arm": "batch=4096", "batch": 4096, "status": "out-of-memory", "why": "too large", "rounds": 0},
    ]
    rounds = [{"arm": "batch=1", "round": 0, "result": {"raw": {"step_s": [0.01, 0.02, 0.03]}}}]
    run.write_bench({"method": "vernier-bench-1", "rows": rows, "compared": [], "facts": [], "rounds": rounds}, "")
    run.write_status("finished", summary={"rows": rows})
    return run.path
