"""The peak memory that `vernier train` predicts before its first step, beside the peak that the kernel measured.

Each row is one training of a few steps in a process of its own, on synthetic images of the network's own size, without
evaluation and checkpoints. The measured peak is the largest resident memory of the process. Memory does not depend on
what else runs on the machine, so the rows need no quiet one.

    python benchmarks/memory_prediction.py [--steps 6] [--only resnet50] [--json]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKPOINTING = "machine.activation_checkpointing=true"
WINOGRAD = "machine.convolution=winograd"
PX_128 = ("data.image_px=128", "data.eval_px=128", "data.eval_short_side_px=146")
BF16 = ("--precision", "bf16", "--allow-slow")
ROWS: list[tuple[str, int, tuple[str, ...], tuple[str, ...]]] = [
    ("resnet18", 8, (), ()),
    ("resnet18", 32, (), ()),
    ("resnet18", 32, (CHECKPOINTING,), ()),
    ("resnet50", 2, (), ()),
    ("resnet50", 8, (), ()),
    ("resnet50", 16, (), ()),
    ("resnet50", 32, (), ()),
    ("resnet50", 8, (CHECKPOINTING,), ()),
    ("resnet50", 32, (CHECKPOINTING,), ()),
    ("resnet50", 32, PX_128, ()),
    ("resnet50", 32, ("machine.process_batch=8",), ()),
    ("resnext50-32x4d", 8, (), ()),
    ("resnext50-32x4d", 8, (CHECKPOINTING,), ()),
    ("resnext101-32x4d", 8, (), ()),
    ("resnext101-32x4d", 8, (CHECKPOINTING,), ()),
    ("convnext-tiny", 8, (), ()),
    ("convnext-tiny", 8, (CHECKPOINTING,), ()),
    ("ssd300-resnet34", 4, (), ()),
    ("ssd300-resnet34", 16, (), ()),
    ("ssd300-resnet34", 16, (CHECKPOINTING,), ()),
    ("resnet18", 32, (WINOGRAD,), ()),
    ("resnet50", 16, (WINOGRAD,), ()),
    ("ssd300-resnet34", 16, (WINOGRAD,), ()),
    ("resnet18", 8, PX_128, BF16),
    ("resnet50", 16, PX_128, BF16),
    ("resnet18", 32, (), ("--mode", "compile")),
    ("resnet50", 16, (), ("--mode", "compile")),
]
"""Network, global batch, settings and flags."""


def measure(row: tuple[str, int, tuple[str, ...], tuple[str, ...]], steps: int) -> dict[str, object]:
    """One training; its predicted and measured peak."""
    network, batch, settings, flags = row
    words = [network, "--data", "synthetic", "--global-batch", str(batch), "--max-steps", str(steps), *flags]
    words += [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryDirectory(prefix="vernier-memory-") as out:
        quiet = ("--train-only", "--no-checkpoints", "--no-tensorboard", "--quiet", "--json", "--out", out)
        command = [sys.executable, "-m", "vernier", "train", *words, *quiet]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr.strip()[-500:]}")
        memory = json.loads(done.stdout)["memory"]
        events = next(Path(out).glob("*/events.jsonl")).read_text().splitlines()
    parts = next(event for event in map(json.loads, events) if event["kind"] == "start")["memory"]
    return {"network": network, "batch": batch, "settings": settings, "flags": flags, **memory, "parts": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", default="", help="rows whose network, settings or flags contain this")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    options = parser.parse_args()
    print(
        "| network | batch | settings | predicted MiB | measured MiB | predicted / measured |\n"
        "|---|---|---|---|---|---|"
    )
    for row in ROWS:
        if options.only not in " ".join(map(str, row)):
            continue
        result = measure(row, options.steps)
        predicted, measured = (int(result[f"{name}_bytes"]) / 2**20 for name in ("predicted", "measured"))  # type: ignore[call-overload]
        words = ", ".join((*row[2], *(" ".join(row[3]),))).strip(", ")
        print(
            f"| {row[0]} | {row[1]} | {words} | {predicted:,.0f} | {measured:,.0f} | {predicted / measured:.2f} |",
            flush=True,
        )
        if options.json:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
