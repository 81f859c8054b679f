"""What each trick of the quick recipes buys: the recipe as it is, and with one thing changed at a time.

Every training is `vernier train` in a process of its own with one thread; two run at once, so times say nothing. All
arms have the same seeds. Prints top-1 of each, and the mean difference from the whole recipe.

    python benchmarks/tricks.py fashion-mnist|airbench-cifar10|shapes-quick [--data PATH] [--epochs 2.5] [--seeds 3]
        [--precision bf16]

`--epochs` shortens the schedule: shorter trainings differ more. Whitening cannot be switched off by a setting; without
it the first layer has PyTorch's random weights and learns like the others.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AIRBENCH = {
    "whole recipe": [],
    "without whitening": ["--without-whitening"],
    "random flips": ["--set", "augment.flip_rule=random"],
}
TRICKS: dict[str, dict[str, list[str]]] = {
    "fashion-mnist": AIRBENCH,
    "airbench-cifar10": {
        **AIRBENCH,
        "32 px from the start": ["--set", "augment.start_px=none", "--set", "augment.phase_epochs=[]"],
        "no mirrored image": ["--set", "eval.flip_tta=false"],
    },
    "shapes-quick": {
        "whole recipe": [],
        "40 px in half of the epochs": [
            *("--set", "augment.start_px=40", "--set", "augment.phase_epochs=[3]", "--set", "optim.lr=0.08")
        ],
        "three quarters of the epochs": ["--epochs", "4.5"],
    },
}


def train_without_whitening(arguments: list[str]) -> int:
    from vernier.cli import main as vernier
    from vernier.engine import starting_weights

    def learn_stem(model: Any, *_: object, **__: object) -> tuple[str, ...]:
        model.conv1.weight.requires_grad_(True)
        return ("conv1 begins with random weights and learns",)

    starting_weights._prepare_from_images = learn_stem
    return vernier(arguments)


def train(recipe: str, trick: list[str], seed: int, common: list[str]) -> float:
    """Top-1 of one training, in percent."""
    own, settings = trick[:1] == ["--without-whitening"], [word for word in trick if word != "--without-whitening"]
    program = [__file__, "--without-whitening"] if own else ["-m", "vernier"]
    with tempfile.TemporaryDirectory() as out:
        flags = ["--seed", str(seed), "--out", out, "--no-checkpoints", "--json", "--set", "machine.threads=1"]
        command = [sys.executable, *program, "train", recipe, *common, *flags, *settings]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return float(json.loads(done.stdout)["result"]["top1"])


def main() -> None:
    if sys.argv[1:2] == ["--without-whitening"]:
        sys.exit(train_without_whitening(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=sorted(TRICKS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    common = ["--precision", options.precision]
    common += ["--data", str(options.data)] if options.data else []
    common += ["--epochs", f"{options.epochs:g}"] if options.epochs else []
    tricks = TRICKS[options.recipe]
    jobs = [(name, seed) for seed in range(1, options.seeds + 1) for name in tricks]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda job: train(options.recipe, tricks[job[0]], job[1], common), jobs)
        top1 = dict(zip(jobs, results, strict=True))
    print(f"{options.recipe} {' '.join(common)}, n = {options.seeds} seeds")
    for name in tricks:
        values = [top1[name, seed] for seed in range(1, options.seeds + 1)]
        differences = [value - top1["whole recipe", seed] for seed, value in enumerate(values, start=1)]
        print(
            f"{name:28s} {', '.join(f'{value:.2f}' for value in values)} %   mean {statistics.mean(values):.2f}, "
            f"{statistics.mean(differences):+.2f} points beside the whole recipe"
        )


if __name__ == "__main__":
    main()
