"""`--engine auto` beside onnxruntime and OpenVINO driven by hand, and INT8 beside fp32.

All arms run the same network on the same batch of real images in one process and take turns in random order. By hand
means: the exported ONNX file, a session of the engine with as many threads, and its own call on an array of pixels. The
arm of Vernier is what evaluation calls, from pixels to predictions. Prints images per second of each arm, and its ratio
to a reference: the median of the rounds with a 95 % interval. INT8 is compared with the same engine in fp32; its
accuracy is what `vernier eval --int8` prints.

    python benchmarks/inference_engines.py --model NAME --weights FILE --images FOLDER [--batch 1,32] [--rounds 30]

A batch smaller than 32 is measured in up to eight times as many rounds. Results: docs/results/inference-engines.md.
"""

import argparse
import os
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vernier.lab.statistics.quantiles import quantile_estimate

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import numpy as np
import torch

from vernier.clock import now_s, utc_stamp
from vernier.compat.engines.choosing import use_engine
from vernier.compat.engines.onnx_files import onnx_file
from vernier.compat.export.network import ExportedNetwork, read_images, spread_indices
from vernier.config import Config, override
from vernier.data.sources.files import FilesSource, find_images
from vernier.engine.execution import Execution
from vernier.engine.inference.engines import installed_engines
from vernier.engine.inference.trained import ModelChoice, Trained, load_model
from vernier.measure.environment import collect_environment, installed_version
from vernier.tasks import task_of

Arm = Callable[[], Any]


def onnxruntime_by_hand(file: Path, pixels: np.ndarray) -> Arm:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"images": pixels})


def openvino_by_hand(file: Path, pixels: np.ndarray) -> Arm:
    """With the batch size fixed, in fp32 as the others."""
    import openvino

    core = openvino.Core()
    model = core.read_model(file)
    model.reshape(list(pixels.shape))
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(model, "CPU", {**hints, "INFERENCE_NUM_THREADS": torch.get_num_threads()})
    request = compiled.create_infer_request()
    return lambda: request.infer([pixels])


BY_HAND = {"onnxruntime": onnxruntime_by_hand, "openvino": openvino_by_hand}


def arm_of(trained: Trained, images: torch.Tensor) -> Arm:
    """The calls of an evaluation for one batch, without the loader."""
    task, device = task_of(trained.config.recipe), trained.device
    forward = Execution(trained.model, trained.config.machine, device, frozen=True).evaluation_network(len(images))
    assert trained.takes_pixels, "PyTorch was the fastest: compare it with `vernier bench infer --engine torch,auto`"

    def run() -> None:
        with device.without_gradients():
            task.predict(forward, images)

    return run


def measure(arms: dict[str, Arm], rounds: int) -> dict[str, list[float]]:
    """Seconds per call of every arm and round; the order within a round is random."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 2):
        for name in random.sample(sorted(arms), len(arms)):
            began_s = now_s()
            arms[name]()
            if number >= 2:  # the first two warm up
                seconds[name].append(now_s() - began_s)
    return seconds


def show(seconds: dict[str, list[float]], batch: int, reference: str) -> None:
    for name, own in seconds.items():
        ratio = quantile_estimate([r / s for r, s in zip(seconds[reference], own, strict=True)], 0.5)
        low, high = ("?" if end is None else f"{end:.3f}" for end in (ratio.low, ratio.high))
        beside = "" if name == reference else f"; {ratio.value:.3f} [{low}, {high}] times {reference}"
        rate = f"{batch / statistics.median(own):7.2f} img/s, n = {len(own)}"
        print(f"batch {batch:3d}  {name:28s} {rate}{beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True, help="a folder of photographs, at least 30")
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()

    def load(engine: str, *, int8: bool = False) -> Trained:
        def changed(config: Config) -> Config:
            return override(override(config, "machine.engine", engine), "machine.int8", int8)

        return load_model(ModelChoice(path=options.weights, model=options.model, changed=changed))

    trained = load("auto")
    source = FilesSource(find_images([options.images]), trained.classes, trained.channels)
    task = task_of(trained.config.recipe)
    images, _ = read_images(task.eval_reader(source), spread_indices(len(source), 32))
    file = onnx_file(trained, ExportedNetwork(trained, normalized_input=False), images)
    machine = collect_environment([], "cpu", torch.get_num_threads())
    versions = ", ".join(f"{name} {installed_version(name)}" for name in ("torch", *installed_engines()))
    print(f"{utc_stamp()}  {torch.get_num_threads()} threads, load {machine.cpu.load_average}; {versions}")
    for batch in map(int, options.batch.split(",")):
        pixels = images.repeat(-(-batch // len(images)), 1, 1, 1)[:batch].contiguous()
        by_hand = {f"{name} by hand": BY_HAND[name](file, pixels.numpy()) for name in installed_engines()}
        automatic = use_engine(trained, source, batch=batch, labelled=False)
        print(*automatic.notes, sep="\n")
        rounds = options.rounds * max(1, min(8, 32 // batch))  # short calls are disturbed more, and cost little
        seconds = measure({**by_hand, "vernier --engine auto": arm_of(automatic, pixels)}, rounds)
        show(seconds, batch, min(by_hand, key=lambda name: statistics.median(seconds[name])))
    for engine in ("onnxruntime",):  # the one that has INT8
        plain, small = (
            use_engine(load(engine, int8=int8), source, batch=batch, labelled=False) for int8 in (False, True)
        )
        print(*small.notes, sep="\n")
        arms = {f"{engine} fp32": arm_of(plain, pixels), f"{engine} INT8": arm_of(small, pixels)}
        show(measure(arms, options.rounds), batch, f"{engine} fp32")
    print("medians with 95 % intervals, n rounds in random order")


if __name__ == "__main__":
    main()
