"""`vernier finetune` beside a plain PyTorch loop of the same length: the same network, weights, images and CPU time.

    python benchmarks/finetune.py sets DATA OUT          make the two sets: OUT/cells and OUT/crops
    python benchmarks/finetune.py plain FOLDER --weights FILE --cpu-minutes 15 [--px 320] [--seed 1]

`sets` takes 180 blood-cell photographs (BCCD, Pascal VOC, the first of its training list) with the official test list
beside them, and crops of objects in COCO's photographs, ten classes, divided by photograph into train/ and test/.

`plain` is what the tutorials do: a new last layer, all layers trained with SGD at one rate that drops to a tenth after
two thirds of the time, batch norm as in training, random crops or flips. Classes: rate 0.001, batch 4, as PyTorch's
transfer-learning tutorial. Boxes: rate 0.005, batch 4, as torchvision's detection tutorial, on the detector and the
default boxes that `vernier finetune` chooses. It reports the result on test/ after the last step.
"""

import argparse
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import numpy as np
import torch
from PIL import Image

from vernier.clock import now_s, process_cpu_s
from vernier.config import Config, Detect, apply_changes
from vernier.data.loading.targets import BoxTargets
from vernier.data.sources import Source, open_boxes, open_split
from vernier.data.sources.base import BoxSource
from vernier.lab.finetuning.picking import MachineFacts, Plan, StartingWeights, pick
from vernier.lab.finetuning.recognizing import recognise_network
from vernier.lab.finetuning.survey import survey
from vernier.models import build, weights
from vernier.models.ssd import Ssd, make_anchors
from vernier.tasks.detection.boxes import Detections, detect, detection_loss
from vernier.tasks.detection.task import _DetectionScore

CELLS, CLASSES, SMALLEST_SIDE = 180, 10, 40
MOST = {"train": 30, "test": 15}
BATCH = 4
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


# ---------------------------------------------------------------------------------------------------------------- sets


def make_sets(data: Path, out: Path) -> None:
    """The two small sets of photographs."""
    _make_cells(data / "bccd", out / "cells")
    _make_crops(data / "coco", out / "crops")


def _make_cells(bccd: Path, out: Path) -> None:
    """The first photographs of the training list, without a validation list; and the official test list."""
    lists = {name: (bccd / "ImageSets" / "Main" / f"{name}.txt").read_text().split() for name in ("train", "test")}
    lists["train"] = lists["train"][:CELLS]
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for split, names in lists.items():
        (out / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names) + "\n")
        for name in names:
            shutil.copyfile(bccd / "Annotations" / f"{name}.xml", out / "Annotations" / f"{name}.xml")
            shutil.copyfile(bccd / "JPEGImages" / f"{name}.jpg", out / "JPEGImages" / f"{name}.jpg")


def _make_crops(coco: Path, out: Path) -> None:
    """Crops of the objects of the most frequent categories, with a margin; a photograph is in one split only."""
    objects: dict[str, list[tuple[Path, list[float], int]]] = defaultdict(list)
    for split in ("train", "val"):
        tree = json.loads((coco / "annotations" / f"instances_{split}2017.json").read_text())
        names = {c["id"]: c["name"].replace(" ", "-") for c in tree["categories"]}
        files = {i["id"]: coco / f"{split}2017" / i["file_name"] for i in tree["images"]}
        for row in sorted(tree["annotations"], key=lambda row: int(row["id"])):
            if not row["iscrowd"] and min(row["bbox"][2:]) >= SMALLEST_SIDE:
                objects[names[row["category_id"]]].append((files[row["image_id"]], row["bbox"], row["id"]))
    for name in sorted(objects, key=lambda name: -len(objects[name]))[:CLASSES]:
        taken: Counter[str] = Counter()
        order = np.random.default_rng(0).permutation(len(objects[name]))
        for file, (x, y, w, h), number in (objects[name][i] for i in order):
            split = "test" if int(file.stem) % 3 == 0 else "train"
            if taken[split] < MOST[split]:
                taken[split] += 1
                target = out / split / name / f"{number}.jpg"
                target.parent.mkdir(parents=True, exist_ok=True)
                margin, image = 0.1 * max(w, h), Image.open(file).convert("RGB")
                edges = (x - margin, y - margin, x + w + margin, y + h + margin)
                limits = (image.width, image.height, image.width, image.height)
                box = tuple(int(min(max(0, edge), limit)) for edge, limit in zip(edges, limits, strict=True))
                image.crop(box).save(target, quality=95)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- plain


def plain(folder: str, file: str, cpu_minutes: float, px: int | None, seed: int) -> dict[str, Any]:
    """Train as a tutorial does, and evaluate on the test split."""
    torch.manual_seed(seed)
    found = survey(folder)
    network = recognise_network(file)
    flags = {"data.image_px": px} if px else {}
    machine, start = MachineFacts.here("cpu"), StartingWeights(text=file, network=network)
    plan = pick(found, machine, start, apply_changes(Config(), flags, ()))
    train, test = ((open_boxes if found.boxes else open_split)(folder, split) for split in ("train", "test"))
    model = _network(plan, file)
    began_s, began_cpu_s = now_s(), process_cpu_s()
    images = _train(model, plan, train, cpu_minutes * 60, torch.Generator().manual_seed(seed))
    spent = {"cpu_s": process_cpu_s() - began_cpu_s, "wall_s": now_s() - began_s}
    figures = (_average_precision if found.boxes else _accuracy)(model, plan, test)
    return {"images": images, "epochs": images / len(train), **spent, **figures}


def _network(plan: Plan, file: str) -> torch.nn.Module:
    recipe, boxes = plan.config.recipe, plan.survey.boxes
    options = {"image_px": recipe.data.image_px, "box_sizes": recipe.model.box_sizes} if boxes else {}
    model = build(recipe.model.name, num_classes=len(plan.survey.classes) + boxes, **options)
    if isinstance(model, Ssd):
        weights.load_backbone(file, model)
    else:
        weights.load(file, model, reset_head=True)
    return model.to(memory_format=torch.channels_last)


def _train(model: torch.nn.Module, plan: Plan, source: Source, budget_s: float, generator: torch.Generator) -> int:
    """Batches in random order until the CPU time is used; how many images that were."""
    boxes = plan.survey.boxes
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.005 if boxes else 0.001, momentum=0.9, weight_decay=5e-4 if boxes else 0
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], gamma=0.1)
    model.train()
    began_s, images, dropped = process_cpu_s(), 0, False
    while (spent_s := process_cpu_s() - began_s) < budget_s:
        if spent_s > budget_s * 2 / 3 and not dropped:
            scheduler.step()
            dropped = True
        for batch in _batches(source, torch.randperm(len(source), generator=generator).tolist()):
            optimizer.zero_grad()
            _loss(model, plan, source, batch, generator).backward()
            optimizer.step()
            images += len(batch)
    return images


def _batches(source: Source, order: list[int]) -> Iterator[list[int]]:
    return (order[i : i + BATCH] for i in range(0, len(order) - BATCH + 1, BATCH))


def _loss(
    model: torch.nn.Module, plan: Plan, source: Source, batch: list[int], generator: torch.Generator
) -> torch.Tensor:
    px = plan.config.recipe.data.image_px
    if isinstance(model, Ssd):
        assert isinstance(source, BoxSource)
        mirrored = [bool(torch.rand((), generator=generator) < 0.5) for _ in batch]
        images = torch.stack([_pixels(source, i, px, flip=flip) for i, flip in zip(batch, mirrored, strict=True)])
        targets = [_boxes(source, i, flip) for i, flip in zip(batch, mirrored, strict=True)]
        padded = BoxTargets.pad(*map(list, zip(*targets, strict=True)), samples=batch, sizes=[(px, px)] * len(batch))
        return detection_loss(*model(images), padded, make_anchors(model.levels), Detect())
    images = torch.stack([_random_crop(source, i, px, generator) for i in batch])
    return torch.nn.functional.cross_entropy(model(images), torch.tensor([int(source.labels[i]) for i in batch]))


def _normalised(image: Image.Image) -> torch.Tensor:
    values = torch.from_numpy(np.asarray(image, np.float32) / 255)
    return ((values - MEAN) / STD).permute(2, 0, 1)


def _pixels(source: Source, index: int, px: int, *, flip: bool = False) -> torch.Tensor:
    image = Image.fromarray(source.image(index)).resize((px, px), Image.Resampling.BILINEAR)
    return _normalised(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image)


def _boxes(source: BoxSource, index: int, flip: bool) -> tuple[torch.Tensor, torch.Tensor]:
    boxes, (height, width) = source.boxes(index), source.image(index).shape[:2]
    ltrb = torch.from_numpy(boxes.ltrb / np.array([width, height, width, height])).float().clamp(0, 1)
    if flip:
        ltrb = torch.stack([1 - ltrb[:, 2], ltrb[:, 1], 1 - ltrb[:, 0], ltrb[:, 3]], dim=1)
    return ltrb, torch.from_numpy(boxes.classes + 1)


def _random_crop(source: Source, index: int, px: int, generator: torch.Generator) -> torch.Tensor:
    """RandomResizedCrop with torchvision's defaults, and a flip."""
    image = Image.fromarray(source.image(index))
    area, ratio, x, y, flip = torch.rand(5, generator=generator).tolist()
    target, aspect = (0.08 + 0.92 * area) * image.width * image.height, float(np.exp(np.log(3 / 4) * (1 - 2 * ratio)))
    width, height = min(image.width, (target * aspect) ** 0.5), min(image.height, (target / aspect) ** 0.5)
    left, top = x * (image.width - width), y * (image.height - height)
    image = image.resize((px, px), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    return _normalised(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip < 0.5 else image)


@torch.no_grad()
def _accuracy(model: torch.nn.Module, plan: Plan, source: Source) -> dict[str, Any]:
    """Short side 256, centre crop 224, as the weights were evaluated; other sizes in proportion."""
    model.eval()
    px, hits = plan.config.recipe.data.image_px, 0
    for index in range(len(source)):
        image = Image.fromarray(source.image(index))
        side = min(image.size) * px / plan.config.recipe.data.eval_short_side_px
        left, top = (image.width - side) / 2, (image.height - side) / 2
        crop = image.resize((px, px), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        hits += int(model(_normalised(crop)[None]).argmax()) == int(source.labels[index])
    return {"top1": 100 * hits / len(source), "test_images": len(source)}


@torch.no_grad()
def _average_precision(model: torch.nn.Module, plan: Plan, source: Source) -> dict[str, Any]:
    assert isinstance(model, Ssd)
    assert isinstance(source, BoxSource)
    model.eval()
    score, anchors, px = _DetectionScore(source), make_anchors(model.levels), plan.config.recipe.data.image_px
    for index in range(len(source)):
        offsets, logits = model(_pixels(source, index, px)[None])
        boxes, size = [_boxes(source, index, flip=False)], source.image(index).shape[:2]
        targets = BoxTargets.pad([boxes[0][0]], [boxes[0][1]], samples=[index], sizes=[(size[0], size[1])])
        found: Detections = detect(offsets, logits, anchors, Detect())
        score.add(found, targets)
    score.collect()
    figures = score.result().figures
    return {name: figures[name] for name in ("AP", "AP50", "AP75")} | {"test_images": len(source)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sets = commands.add_parser("sets")
    sets.add_argument("data", type=Path)
    sets.add_argument("out", type=Path)
    by_hand = commands.add_parser("plain")
    by_hand.add_argument("folder")
    by_hand.add_argument("--weights", required=True)
    by_hand.add_argument("--cpu-minutes", type=float, required=True)
    by_hand.add_argument("--px", type=int)
    by_hand.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.command == "sets":
        make_sets(args.data, args.out)
        return
    print(json.dumps(plain(args.folder, args.weights, args.cpu_minutes, args.px, args.seed), indent=2))


if __name__ == "__main__":
    main()
