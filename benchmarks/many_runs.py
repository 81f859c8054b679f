"""How long `vernier report FOLDER` takes for many runs: makes run directories, then times the command.

Each directory has what a training of 30 epochs leaves for a report: configuration, environment, summary, 300 windows
of steps and 30 evaluations, with settings and results of its own. The command runs in fresh processes; processor time
is printed too, since other programs disturb it less than wall time. Results are in docs/results/report.md.

    python benchmarks/many_runs.py [--runs 1000] [--repeats 5] [--folder KEEP]
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from vernier.clock import now_s
from vernier.config import Config, override, to_dict
from vernier.records.codec import encode
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.records.run import Best, EvalResult, RunSummary, TrainingSpeed
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir

EPOCHS, WINDOWS_PER_EPOCH, STEPS_PER_WINDOW = 30, 10, 20
RATES, DECAYS, WIDTHS = (0.05, 0.1, 0.2, 0.4), (1e-5, 5e-5, 1e-4), (16, 32)


def what_ran(width: int) -> WhatRan:
    return WhatRan(
        kind="train",
        recipe="shapes-quick",
        network=f"resnet8-small, width {width}",
        parameters=312_000 * width // 32,
        gmac=0.0169,
        image_px=64,
        classes=10,
        batch_per_device=32,
        data="shapes",
        feeding="2 loader threads",
        device="cpu (AMD EPYC)",
        threads=2,
        torch="2.13.0+cpu",
        vernier="0.3.0",
        date="2026-11-17",
    )


def make_run(folder: Path, number: int) -> None:
    """One finished run as a training leaves it, with settings and results of its own."""
    dice = random.Random(number)
    lr, decay, width = RATES[number % 4], DECAYS[number // 4 % 3], WIDTHS[number // 12 % 2]
    config = Config()
    values = {"optim.lr": lr, "optim.weight_decay": decay, "model.width": width, "seed": number}
    for name, value in values.items():
        config = override(config, f"recipe.{name}", value)
    run = RunDir(folder / f"202611{1 + number // 86400:02d}-{number % 86400:06d}-shapes-quick")
    (run.path / "checkpoints").mkdir(parents=True)
    run.write_config(to_dict(config))
    run.write_environment({"host": "node", "versions": {"torch": "2.13.0"}, "variables": {"OMP_NUM_THREADS": "1"}})
    ran, log = what_ran(width), run.events()
    log.emit(StartEvent(recipe="shapes-quick", classes=10, train_samples=8000, val_samples=1000, ran=ran))
    result, top1 = EvalResult(), 10.0
    for window in range(EPOCHS * WINDOWS_PER_EPOCH):
        step = (window + 1) * STEPS_PER_WINDOW
        epoch = step / (WINDOWS_PER_EPOCH * STEPS_PER_WINDOW)
        times = tuple(0.05 * (1 + 0.1 * dice.random()) for _ in range(STEPS_PER_WINDOW))
        loss, waits = 2.3 * 0.97**window + 0.1 * dice.random(), tuple(t / 50 for t in times)
        log.emit(
            StepEvent(
                step=step,
                epoch=epoch,
                loss=loss,
                lr=lr,
                samples=32 * STEPS_PER_WINDOW,
                step_s=times,
                wait_s=waits,
                t_s=float(step),
            )
        )
        if epoch == int(epoch):
            top1 += (90 + 10 * lr - top1) * 0.2 + dice.random()
            result = EvalResult(samples=1000, figures={"top1": round(top1, 1), "top5": 99.0, "loss": loss})
            log.emit(EvalEvent(step=step, epoch=epoch, seconds=0.5, best=True, **vars(result)))
    log.close()
    rate = 600 * (1 + 0.05 * dice.random())
    speed = TrainingSpeed(
        images_per_s_total=rate,
        images_per_s_per_device=rate,
        devices=1,
        method="steady steps",
        images_per_s_total_95=(0.98 * rate, 1.02 * rate),
        data_wait_share=0.02,
    )
    summary = RunSummary(
        step=step,
        epoch=float(EPOCHS),
        result=result,
        best=Best(step=step, figures={"top1": top1}),
        spent_s={"compute": 300.0, "evaluation": 15.0, "total": 320.0},
        training=speed,
        ran=ran,
    )
    run.write_status("finished", summary=encode(summary))


def time_report(folder: Path, page: Path) -> tuple[float, float]:
    """Wall and processor seconds of the command in a fresh process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), now_s()
    subprocess.run(
        [sys.executable, "-m", "vernier", "report", str(folder), "--out", str(page), "--json"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wall_s, after = now_s() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="where to make the runs, and keep them; default: a temporary folder"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / "runs"
        for number in range(options.runs):
            if not list(folder.glob(f"*-{number:06d}-shapes-quick")):
                make_run(folder, number)
        page = folder.parent / "page.html"
        times = [time_report(folder, page) for _ in range(options.repeats)]
        wall, cpu = zip(*times, strict=True)
        sys.stdout.write(
            json.dumps(
                {
                    "runs": options.runs,
                    "repeats": options.repeats,
                    "wall_s_median": round(statistics.median(wall), 2),
                    "wall_s_min_max": [round(min(wall), 2), round(max(wall), 2)],
                    "cpu_s_median": round(statistics.median(cpu), 2),
                    "cpu_s_min_max": [round(min(cpu), 2), round(max(cpu), 2)],
                    "page_bytes": page.stat().st_size,
                },
                indent=2,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
