"""Writes a golden set: small files of every kind that Vernier writes, for `test_golden.py` to read in later versions.

    .venv/bin/python -m tests.golden.make tests/golden/0.4

Run it on the release commit: a development version is refused, because its files would be read as those of a release.
It takes about two minutes. `--source SRC` runs another checkout, of which SRC is the folder `src`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import REPO

CLASSES = 1
"""Classes of the detector's boxes. The convolutions that score classes are most of a small SSD."""
TINY = (
    "--data ./shapes --set global_batch=8 --set model.width=8 --set model.stem=small --set data.image_px=32 "
    "--set data.eval_px=32 --set data.eval_short_side_px=32 --set machine.threads=1 --set machine.eval_batch=8"
)
"""The narrowest model that Vernier builds, so that a file of weights takes 80 KB."""
TRAIN = (
    "--no-tensorboard --set limits.log_every_steps=1 --set machine.telemetry_hz=2 --set eval.every_epochs=4 "
    "--set checkpoint.keep_last=1 --set machine.batch_norm_statistics=first"
)
WITHOUT_STATE = "--set ema.decay=0 --set optim.momentum=0 --set optim.nesterov=false"
"""A checkpoint is one file of weights. `stopped` has momentum, to resume from; averaged weights are in 0.1."""
MEASURE = "--steps 6 --repeats 2 --max-seconds 0.2"
RUNS = {
    "classifier": f"train {TINY} {TRAIN} {WITHOUT_STATE} --epochs 2 --set augment.mixup=0.2",
    "stopped": f"train {TINY} {TRAIN} --epochs 4 --max-steps 3 --set ema.decay=0 --set model.freeze=['layer3']",
    "detector": (
        f"train ssd-shapes-quick {TRAIN} {WITHOUT_STATE} --data ./shapes --epochs 1 --global-batch 8 --max-steps 2 "
        "--set model.width=8 --set machine.threads=1 --set machine.eval_batch=4 --set detect.max_detections=5"
    ),
    "bench-train": f"bench train {TINY} {MEASURE} --batch 8,16",
    "bench-infer": f"bench infer {TINY} {MEASURE} --batch 8 --scenarios offline,single-stream",
    "bench-scaling": f"bench scaling {TINY} {MEASURE} --batch 8 --procs 1,2",
    "profile": f"profile {TINY} --steps 1:1",
}
"""Name of a run directory -> the command that writes it; each gets `--out`."""
AFTERWARDS = (
    "study run --workload shapes --iterations 6 --repeats 3 --batch 2 --virtual 5 --slow 3=1.5 --pause 0s --kernels 1 "
    "--out study",
    "study baseline study -o baseline.json",
)
ANSWERS = {
    "classifier-eval.json": "eval classifier --json",
    "detector-eval.json": "eval detector --json",
    "analysis.json": "study analyze study --json",
}
"""File -> the command whose output it contains: what later versions have to compute from the same files."""
OMITTED = (
    "runs",
    "*/run.lock",
    "profile/traces/trace.*",
    "profile/traces/calls.*",
    "study/study/*[1-4]/*/kernels.csv",
    "study/study/*/repeat-[12]/kernels.csv",
)
"""Locks, and large files that Vernier does not read again or that exist several times."""
NEUTRAL_SOURCE, NEUTRAL_SCRATCH = "/opt/vernier/src", "/scratch"


def commands() -> list[str]:
    """Every command in the order in which they run."""
    data = "data make shapes --out shapes --train 20 --val 10 --size-px 32 --seed 3"
    return [data, *(f"{line} --out runs/{name}" for name, line in RUNS.items()), *AFTERWARDS, *ANSWERS.values()]


def make(out: Path, source: Path, scratch: Path) -> None:
    """Run all commands in `scratch`, and move what is worth keeping to `out`."""
    folder = scratch / "golden"
    folder.mkdir()
    data, *others = commands()
    _vernier(data, folder, source)
    _merge_classes(folder / "shapes" / "annotations")
    for line in others:
        output = _vernier(line, folder, source)
        words = line.split()
        if words[-2] == "--out" and words[-1].startswith("runs/"):
            (run,) = (folder / words[-1]).iterdir()
            run.rename(folder / Path(words[-1]).name)
        for name, asked in ANSWERS.items():
            if line == asked:
                (folder / name).write_text(output)
    for path in {p for pattern in OMITTED for p in folder.glob(pattern)}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _hide_paths(
        folder, {str(source): NEUTRAL_SOURCE, str(scratch): NEUTRAL_SCRATCH, tempfile.gettempdir(): NEUTRAL_SCRATCH}
    )
    shutil.move(folder, out)


def _vernier(line: str, folder: Path, source: Path) -> str:
    sys.stderr.write(f"vernier {line}\n")
    variables = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-P", "-m", "vernier", *line.split()]
    done = subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"The command ended with exit code {done.returncode}.")
    return done.stdout


def _merge_classes(annotations: Path) -> None:
    """Give all boxes the first class."""
    for path in annotations.glob("*.json"):
        tree = json.loads(path.read_text())
        tree["categories"] = tree["categories"][:CLASSES]
        for box in tree["annotations"]:
            box["category_id"] = tree["categories"][0]["id"]
        path.write_text(json.dumps(tree))


def _hide_paths(folder: Path, replaced: dict[str, str]) -> None:
    """Replace paths of this machine. Files of a checkpoint have hashes, and must not contain any."""
    for path in [p for suffix in ("json", "jsonl", "md", "csv") for p in folder.rglob(f"*.{suffix}")]:
        text = new = path.read_text()
        for old, neutral in replaced.items():
            new = new.replace(old, neutral)
        if new != text and path.parent.parent.name == "checkpoints":
            sys.exit(f"{path} contains a path of this machine.")
        if new != text:
            path.write_text(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write, named after the version: tests/golden/0.4")
    parser.add_argument("--source", type=Path, default=REPO / "src", help="folder src of another checkout")
    options = parser.parse_args()
    version = _vernier("--version", REPO, options.source.resolve()).strip()
    if "dev" in version or options.out.exists():
        sys.exit(f"{options.out} exists." if options.out.exists() else f"{version} is not a release.")
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        make(options.out.resolve(), options.source.resolve(), Path(scratch))
    size = sum(p.stat().st_size for p in options.out.rglob("*") if p.is_file())
    sys.stderr.write(f"{options.out}: {version}, {size / 1000:.0f} KB\n")


if __name__ == "__main__":
    main()
