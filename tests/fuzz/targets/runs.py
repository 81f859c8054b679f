"""Run directories, checkpoints and benchmarks, as `report`, `compare`, `convert`, `plan`, `eval`, `export` do."""

import hashlib
import json
from pathlib import Path

from tests.engine.inference.loading import load_trained
from tests.lab.logs.test_as_study import run_of_two
from tests.report.bench_results import bench_run
from tests.report.run_dirs import step_times, write_run
from vernier.config.parsing import config_from_tree
from vernier.engine.inference.export import describe_model
from vernier.engine.inference.trained import checkpoint_steps
from vernier.engine.training.checkpoints.contents import read_state
from vernier.lab.logs.reading import open_logs
from vernier.lab.planning.workload import read_measured_run
from vernier.report.model_card import write_card
from vernier.store import RunDir
from vernier.store.checkpoints import CheckpointDir

from .base import Files, Target, attempt
from .files import golden_run, written
from .logs import convert_to, read_all_ways

_SMALL_FILES = ("*.json", "*.jsonl", "predictions/*.json", "traces/*.csv", "traces/*.json")


def _without_folder(files: Files) -> Files:
    return {path.partition("/")[2]: content for path, content in files.items()}


def _run_examples() -> dict[str, Files]:
    current = written(lambda root: write_run(root, "small", step_times(1, n=30), steps_per_epoch=10))
    golden = {name: golden_run(name, *_SMALL_FILES) for name in ("classifier", "detector", "profile")}
    return {"current": _without_folder(current), **golden}


def _read_run(folder: Path) -> None:
    attempt(lambda: config_from_tree(RunDir.open(folder).read_config()))
    read_all_ways(folder, folder.parent / f"{folder.name}-scratch", read_measured_run)


def _trace_examples() -> dict[str, Files]:
    return {"two": _without_folder(written(run_of_two))}


def _read_trace(folder: Path) -> None:
    convert_to(folder, "study", folder.parent / "scratch")


def _bench_examples() -> dict[str, Files]:
    old = {
        name: golden_run(name, "config.json", "bench.json", largest=200_000) for name in ("bench-train", "bench-infer")
    }
    return {
        "current": _without_folder(written(bench_run)),
        **{name: _fewer_rounds(files) for name, files in old.items()},
    }


def _fewer_rounds(files: Files) -> Files:
    """A smaller bench.json: samples of later rounds are left out, so that more inputs can be tried per second."""

    def shorten(tree: object) -> object:
        if isinstance(tree, list):
            return [shorten(item) for item in tree[:6]]
        return {key: shorten(item) for key, item in tree.items()} if isinstance(tree, dict) else tree

    return {path: json.dumps(shorten(json.loads(content))).encode() for path, content in files.items()}


def _read_bench(folder: Path) -> None:
    attempt(lambda: open_logs(folder / "bench.json"))
    read_all_ways(folder, folder.parent / f"{folder.name}-scratch", read_measured_run)


def _checkpoint_examples() -> dict[str, Files]:
    """As they are, and with a manifest that is made right again, so that damage behind it is reached."""
    patterns = ("*.json", "*.jsonl", "checkpoints/latest", "checkpoints/best", "checkpoints/*/*")
    old = {name: golden_run(name, *patterns, largest=400_000) for name in ("classifier", "stopped")}
    return {**old, **{f"{name}-rehashed": files for name, files in old.items()}}


def _read_checkpoint(folder: Path) -> None:
    if folder.name.endswith("-rehashed"):
        for manifest in folder.glob("checkpoints/*/manifest.json"):
            _make_right(manifest)
    attempt(lambda: checkpoint_steps(folder))
    for path in folder.glob("checkpoints/step-*"):
        attempt(lambda path=path: config_from_tree(read_state(CheckpointDir.open(path)).config))  # type: ignore[misc]
    trained = load_trained(folder)
    exported = folder.with_name("exported.safetensors")
    exported.touch()
    write_card(exported, describe_model(trained), origin=folder, checkpoint=trained.checkpoint).unlink()


def _make_right(manifest: Path) -> None:
    paths = [p for p in manifest.parent.iterdir() if p.is_file() and p != manifest]
    files = {p.name: {"bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()} for p in paths}
    step = int(manifest.parent.name.partition("-")[2])
    manifest.write_text(json.dumps({"schema": 1, "step": step, "files": files}))


TARGETS = (
    Target("run", _run_examples, _read_run, text=True),
    Target("trace", _trace_examples, _read_trace, text=True),
    Target("bench", _bench_examples, _read_bench, text=True),
    Target("checkpoint", _checkpoint_examples, _read_checkpoint),
)
