"""What detection costs beside the network: matching and loss in a training step, post-processing in evaluation.

Training: at the given batch, the time of matching and loss (forward and backward through them) and the time of the
network's own forward and backward, measured apart, in turns. Evaluation: the network's forward, and `detect` on its own
thread, for outputs like a trained network's (a dozen objects, each seen by forty default boxes, the rest background)
and for two that are as bad as it gets: `crowded`, 17 classes above the threshold in every default box, and
`collapsed`, the same with all boxes in one place, where nearly every candidate must be suppressed.
Usage: python benchmarks/detection.py [--model ssd300-resnet34] [--batch 8] [--rounds 5] [--json]
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

from vernier import models
from vernier.config import Detect
from vernier.data.targets import BoxTargets
from vernier.measure.clock import now_s, utc_stamp
from vernier.measure.environment import environment
from vernier.models.ssd import Ssd
from vernier.tasks.boxes import detect
from vernier.tasks.detect_loss import detection_loss

OBJECTS = (7.3, 60)  # COCO's mean number of objects in a training image, and a crowded one, to which a batch is padded


def targets(batch: int, classes: int) -> BoxTargets:
    """As many objects as COCO images have, and one crowded image that everybody is padded to."""
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
        seen = torch.rand(batch, classes - 1, boxes).topk(min(17, classes - 1), dim=1).indices + 1
        logits.mul_(0.2).scatter_add_(1, seen, torch.full(seen.shape, 6.0))
    if kind == "collapsed":
        place, variances = torch.tensor([0.5, 0.5, 0.5, 0.5]), torch.tensor([0.1, 0.1, 0.2, 0.2])
        exact = torch.cat([(place[:2] - anchors[:, :2]) / anchors[:, 2:], (place[2:] / anchors[:, 2:]).log()], dim=1)
        offsets = (exact / variances).T.expand(batch, 4, boxes).contiguous()
    return offsets.transpose(1, 2), logits.transpose(1, 2)


def timed_ms(work: Callable[[], object]) -> float:
    begin = now_s()
    work()
    return 1000 * (now_s() - begin)


def summary(values: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def training(model: Ssd, batch: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a step: the network's forward and backward, and everything between its outputs and their gradients."""
    images, wanted = torch.randn(batch, 3, model.image_px, model.image_px), targets(batch, model.num_classes)
    model, images = model.train().to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    network, loss = [], []
    for _ in range(rounds + 1):  # the first is dropped
        begin = now_s()
        offsets, logits = model(images)
        forward = now_s() - begin
        leaves = offsets.detach().requires_grad_(), logits.detach().requires_grad_()

        def matching_and_loss(leaves: tuple[torch.Tensor, torch.Tensor] = leaves) -> None:
            detection_loss(*leaves, wanted, model.anchors, Detect()).backward()

        loss.append(timed_ms(matching_and_loss))
        grads = [leaf.grad for leaf in leaves]
        network.append(
            1000 * forward + timed_ms(lambda o=offsets, c=logits, g=grads: torch.autograd.backward([o, c], g))
        )
    shares = [100 * part / whole for part, whole in zip(loss[1:], network[1:], strict=True)]
    return {
        "network_ms": summary(network[1:]),
        "matching_and_loss_ms": summary(loss[1:]),
        "share_percent": summary(shares),
    }


def evaluation(model: Ssd, batch: int, rounds: int, kind: str, repeats: int) -> dict[str, Any]:
    """Milliseconds an image: the network's forward on all threads, and `detect` on one."""
    images = torch.randn(batch, 3, model.image_px, model.image_px).to(memory_format=torch.channels_last)
    model, threads = model.eval().to(memory_format=torch.channels_last), torch.get_num_threads()
    found = outputs(kind, batch, model.anchors, model.num_classes)
    forward, post = [], []
    with torch.inference_mode():
        for _ in range(rounds + 1):
            forward.append(timed_ms(lambda: model(images)) / batch)
            torch.set_num_threads(1)
            post += [timed_ms(lambda: detect(*found, model.anchors, Detect())) / batch for _ in range(repeats)]
            torch.set_num_threads(threads)
    forward, post = forward[1:], post[repeats:]
    scores = found[1].softmax(-1)[..., 1:]
    return {
        "outputs": kind,
        "batch": batch,
        "candidates_per_image": int((scores > Detect().score).sum()) // batch,
        "network_ms": summary(forward),
        "post_ms": summary(post),
        "share_percent": 100 * statistics.median(post) / statistics.median(forward),
    }


def described(values: dict[str, Any]) -> str:
    return f"{values['median']:.2f} ({values['low']:.2f} to {values['high']:.2f}, n = {values['n']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="ssd300-resnet34")
    parser.add_argument("--classes", type=int, default=81)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = models.build(given.model, num_classes=given.classes)
    assert isinstance(model, Ssd), f"{given.model} is not a detector"
    found = environment([], "cpu", torch.get_num_threads())
    result: dict[str, Any] = {
        "when": utc_stamp(),
        "model": given.model,
        "batch": given.batch,
        "boxes": len(model.anchors),
        "threads": torch.get_num_threads(),
        "cores": found["cpu"]["cores_logical"],
        "torch": found["versions"]["torch"],
        "load_average": found["cpu"]["load_average"],
        "training": training(model, given.batch, given.rounds),
        "evaluation": [
            evaluation(model, batch, given.rounds, kind, repeats=5)
            for kind in ("trained", "crowded", "collapsed")
            for batch in (given.batch, 1)
        ],
    }
    if given.json:
        json.dump(result, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    show(result)


def show(result: dict[str, Any]) -> None:
    step = result["training"]
    print(
        f"{result['when']}  {result['model']}, {result['boxes']} boxes, {result['threads']} threads of {result['cores']} "
        f"cores, torch {result['torch']}, load {result['load_average']}; medians (lowest to highest)\n"
        f"training, batch {result['batch']}: network {described(step['network_ms'])} ms, matching and loss "
        f"{described(step['matching_and_loss_ms'])} ms: {described(step['share_percent'])} %"
    )
    for row in result["evaluation"]:
        print(
            f"evaluation, batch {row['batch']}, {row['outputs']} ({row['candidates_per_image']} candidates an image): "
            f"network {described(row['network_ms'])} ms an image, post-processing on one thread "
            f"{described(row['post_ms'])} ms an image: {row['share_percent']:.1f} %"
        )


if __name__ == "__main__":
    main()
