"""The cost of detection besides the network: matching and loss in a training step, post-processing in evaluation.

Training: at the given batch, matching and loss (forward and backward through them) and the network's own forward and
backward, measured separately, alternating. Evaluation: the network's forward on all threads and `detect` on one, for
outputs like a trained network's (a dozen objects, each covered by forty default boxes, the rest background) and for
two worst cases: `crowded`, 17 classes above the threshold in every default box, and `collapsed`, the same with all
boxes at one position, where nearly every candidate must be suppressed. By wall time and by CPU time of all threads,
which other programs disturb less.

    python benchmarks/detection.py [--model ssd300-resnet34] [--batch 8] [--rounds 5] [--json]
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

from vernier import models
from vernier.clock import now_s, process_cpu_s, utc_stamp
from vernier.config import Detect
from vernier.data.loading.targets import BoxTargets
from vernier.measure.environment import collect_environment
from vernier.models.ssd import Ssd, make_anchors
from vernier.records.codec import encode
from vernier.tasks.detection.boxes import detect, detection_loss

REPEATS = 5  # of post-processing per round
OBJECTS = (7.3, 60)  # COCO's mean number of objects per training image, and a crowded image


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of `n` values, the lowest and the highest."""

    median: float
    low: float
    high: float
    n: int


Times = dict[str, Spread]
"""By clock: wall time, and processor time of all threads."""


def targets(batch: int, classes: int) -> BoxTargets:
    """As many objects as COCO images have, and one crowded image to which the batch is padded."""
    counts = torch.poisson(torch.full((batch,), OBJECTS[0])).long().clamp(min=1).tolist()
    counts[0] = OBJECTS[1]
    corners = [torch.rand(count, 2, 2).sort(dim=1).values.reshape(-1, 4) for count in counts]
    kinds = [torch.randint(1, classes, (count,)) for count in counts]
    return BoxTargets.pad(corners, kinds, samples=range(batch), sizes=[(480, 640)] * batch)


def outputs(kind: str, batch: int, anchors: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and logits as the network returns them: views of [N, values, A]."""
    boxes = len(anchors)
    offsets, logits = torch.randn(batch, 4, boxes) * 0.5, torch.randn(batch, classes, boxes) * 0.5
    if kind == "trained":
        logits[:, 0] += 9
        for image in range(batch):
            for _ in range(12):
                near = (anchors - anchors[torch.randint(boxes, ())]).abs().sum(1).topk(40, largest=False).indices
                logits[image, torch.randint(1, classes, ()), near] += 9 + 2 * torch.randn(40)
    else:
        chosen = torch.rand(batch, classes - 1, boxes).topk(min(17, classes - 1), dim=1).indices + 1
        logits.mul_(0.2).scatter_add_(1, chosen, torch.full(chosen.shape, 6.0))
    if kind == "collapsed":
        box, variances = torch.tensor([0.5, 0.5, 0.5, 0.5]), torch.tensor([0.1, 0.1, 0.2, 0.2])
        exact = torch.cat([(box[:2] - anchors[:, :2]) / anchors[:, 2:], (box[2:] / anchors[:, 2:]).log()], dim=1)
        offsets = (exact / variances).T.expand(batch, 4, boxes).contiguous()
    return offsets.transpose(1, 2), logits.transpose(1, 2)


def time_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Wall milliseconds, and CPU milliseconds of all threads together."""
    wall, cpu = now_s(), process_cpu_s()
    work()
    return 1000 * (now_s() - wall), 1000 * (process_cpu_s() - cpu)


def summarize(pairs: list[tuple[float, float]]) -> Times:
    return {
        name: Spread(median=statistics.median(values), low=min(values), high=max(values), n=len(values))
        for name, values in zip(("wall", "processor"), zip(*pairs, strict=True), strict=True)
    }


def shares(part: list[tuple[float, float]], whole: list[tuple[float, float]]) -> Times:
    """Percent, pair by pair."""
    return summarize([(100 * p[0] / w[0], 100 * p[1] / w[1]) for p, w in zip(part, whole, strict=True)])


def training(model: Ssd, batch: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per step: the network's forward and backward, and matching and loss with their own."""
    images, boxes = torch.randn(batch, 3, model.image_px, model.image_px), targets(batch, model.num_classes)
    anchors = make_anchors(model.levels)
    model, images = model.train().to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    network, loss = [], []
    for _ in range(rounds + 1):  # the first is dropped
        predictions: list[torch.Tensor] = []
        forward = time_ms(lambda out=predictions: out.extend(model(images)))
        leaves = [output.detach().requires_grad_() for output in predictions]
        loss.append(time_ms(lambda leaves=leaves: detection_loss(*leaves, boxes, anchors, Detect()).backward()))
        grads = [leaf.grad for leaf in leaves]
        backward = time_ms(lambda out=predictions, grads=grads: torch.autograd.backward(out, grads))
        network.append((forward[0] + backward[0], forward[1] + backward[1]))
        model.zero_grad()
    return {
        "network_ms": summarize(network[1:]),
        "matching_and_loss_ms": summarize(loss[1:]),
        "share_percent": shares(loss[1:], network[1:]),
    }


def evaluation(model: Ssd, batch: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per image: the network's forward, and `detect` by kind of output and batch."""
    images = torch.randn(batch, 3, model.image_px, model.image_px).to(memory_format=torch.channels_last)
    model = model.eval().to(memory_format=torch.channels_last)
    with torch.inference_mode():
        forward = summarize([per_image(time_ms(lambda: model(images)), batch) for _ in range(rounds + 1)][1:])
        rows = [time_detect(model, kind, n, rounds) for kind in ("trained", "crowded", "collapsed") for n in (batch, 1)]
    for row in rows:
        row["share_percent"] = {c: 100 * row["post_ms"][c].median / forward[c].median for c in forward}
    return {"network_ms": forward, "post": rows}


def time_detect(model: Ssd, kind: str, batch: int, rounds: int) -> dict[str, Any]:
    """`detect` alone, on one thread."""
    anchors, threads = make_anchors(model.levels), torch.get_num_threads()
    predictions = outputs(kind, batch, anchors, model.num_classes)
    torch.set_num_threads(1)
    spent = [time_ms(lambda: detect(*predictions, anchors, Detect())) for _ in range(REPEATS * rounds + 1)][1:]
    torch.set_num_threads(threads)
    above = predictions[1].softmax(-1)[..., 1:] > Detect().min_score
    return {
        "outputs": kind,
        "batch": batch,
        "candidates_per_image": int(above.sum()) // batch,
        "post_ms": summarize([per_image(pair, batch) for pair in spent]),
    }


def per_image(pair: tuple[float, float], batch: int) -> tuple[float, float]:
    return pair[0] / batch, pair[1] / batch


def describe(times: Times) -> str:
    wall, cpu = times["wall"], times["processor"]
    return (
        f"{wall.median:.2f} ({wall.low:.2f} to {wall.high:.2f}), by CPU time {cpu.median:.2f} "
        f"({cpu.low:.2f} to {cpu.high:.2f}), n = {wall.n}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="ssd300-resnet34")
    parser.add_argument("--classes", type=int, default=81)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = models.build(options.model, num_classes=options.classes)
    assert isinstance(model, Ssd), f"{options.model} is not a detector"
    environment = collect_environment([], "cpu", torch.get_num_threads())
    result: dict[str, Any] = {
        "when": utc_stamp(),
        "model": options.model,
        "batch": options.batch,
        "boxes": len(make_anchors(model.levels)),
        "threads": torch.get_num_threads(),
        "cores": environment.cpu.cores_logical,
        "torch": environment.versions["torch"],
        "load_average": environment.cpu.load_average,
        "training": training(model, options.batch, options.rounds),
        "evaluation": evaluation(model, options.batch, options.rounds),
    }
    if options.json:
        json.dump(encode(result), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    show(result)


def show(result: dict[str, Any]) -> None:
    step, evaluated = result["training"], result["evaluation"]
    print(
        f"{result['when']}  {result['model']}, {result['boxes']} boxes, "
        f"{result['threads']} threads of {result['cores']} cores, torch {result['torch']}, "
        f"load {result['load_average']}; medians (lowest to highest)\n"
        f"training, batch {result['batch']}, ms per step: network {describe(step['network_ms'])}\n"
        f"  matching and loss {describe(step['matching_and_loss_ms'])}\n"
        f"  percent of the network's time {describe(step['share_percent'])}\n"
        f"evaluation, ms per image: network at batch {result['batch']} {describe(evaluated['network_ms'])}"
    )
    for row in evaluated["post"]:
        print(
            f"  post-processing on one thread, {row['outputs']} ({row['candidates_per_image']} candidates per image), "
            f"batch {row['batch']}: {describe(row['post_ms'])}: {row['share_percent']['wall']:.1f} % of the network's "
            f"time, {row['share_percent']['processor']:.1f} % by CPU time"
        )


if __name__ == "__main__":
    main()
