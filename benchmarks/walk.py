"""Time the walk of docs/getting-started.md: from `git clone` to a report of one's own photographs, and its use.

Takes the commands of the page in their order, up to the section about detectors, and runs each in a fresh clone of this
repository with a cache of its own. Prints a table of wall and processor seconds. Results are in docs/results/walk.md.

    python benchmarks/walk.py [--weights FILE] [--folder KEEP]

`--weights` is for machines without a network: fine-tuning then starts from this file instead of published weights.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from vernier.clock import now_s

REPO = Path(__file__).resolve().parents[1]
LAST_SECTION = "## Train a detector"
CLONE = "git clone <this repository> && cd vernier"
ACTIVATE = "source .venv/bin/activate"


def commands() -> list[str]:
    """The command lines of the page, without those of later sections."""
    text = (REPO / "docs" / "getting-started.md").read_text(encoding="utf-8").partition(LAST_SECTION)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def run(line: str, folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of a command line, with those of all processes that it started."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), now_s()
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
    wall_s, after = now_s() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{line}\n{done.stdout}{done.stderr}")
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def walk(folder: Path, weights: str | None) -> list[tuple[str, float, float]]:
    """Every command with its wall and processor seconds."""
    clone = folder / "vernier"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS")}
    environment |= {"VERNIER_HOME": str(folder / "cache"), "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"}
    times = []
    for line in commands():
        if line == ACTIVATE:  # its effect is in PATH
            continue
        actual = line.replace(CLONE, f"git clone --quiet {REPO} vernier")
        if runs := sorted((clone / "runs").glob("*-*")):
            actual = re.sub(r"\bruns/RUN\b", f"runs/{runs[0].name}", actual)
        if weights and actual.startswith("vernier finetune"):
            actual += f" --weights {weights}"
        times.append((line, *run(actual, clone if clone.exists() else folder, environment)))
        sys.stderr.write(f"{times[-1][1]:7.1f} s  {line}\n")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=lambda text: str(Path(text).resolve()), help="a file to fine-tune from")
    parser.add_argument("--folder", type=Path, help="where to walk, and keep it; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        times = walk((options.folder or Path(temporary)).resolve(), options.weights)
    times.append(("all", sum(wall for _, wall, _ in times), sum(cpu for _, _, cpu in times)))
    rows = (f"| `{line}` | {wall:.1f} | {cpu:.1f} |" for line, wall, cpu in times)
    sys.stdout.write("\n".join(["| command | wall s | processor s |", "|---|---|---|", *rows]) + "\n")


if __name__ == "__main__":
    main()
