"""Weights of others through the command line: evaluation, fine-tuning, export."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.conftest import Done, only_run
from vernier.models import build

SMALL = [
    "--set",
    "model.width=8",
    "--set",
    "model.stem=small",
    "--set",
    "machine.threads=1",
    "--set",
    "machine.eval_batch=16",
]


@pytest.fixture
def trained(tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path) -> Path:
    done = vernier_here("train", *tiny, "--max-steps", "4", "--set", "ema.decay=0.5")
    assert done.code == 0, done.err
    return only_run(tmp_path / "runs")


def test_published_cifar_weights_give_the_published_accuracy(
    vernier_here: Callable[..., Done], real_data: Callable[[str], Path]
) -> None:
    home = real_data("cifar10")
    done = vernier_here(
        "eval",
        "--model",
        "resnet20-cifar",
        "--weights",
        str(home / "resnet20-12fca82f.th"),
        "--data",
        str(home),
        "--json",
    )
    assert done.code == 0, done.err
    result = done.json()
    assert result["top1"] == 91.73
    assert result["samples"] == 10_000
    assert result["step"] is None


# COCO photographs whose main object has a class of its own in ImageNet: COCO category -> ImageNet indices.
IMAGENET_OF_COCO = {
    "zebra": {340},
    "elephant": {101, 385, 386},
    "bear": {294, 295, 296, 297},
    "train": {466, 547, 565, 705, 820, 829},
    "airplane": {404, 895, 908},
    "bus": {654, 779, 874},
    "cat": {281, 282, 283, 284, 285},
    "stop sign": {919},
    "parking meter": {704},
    "toilet": {861},
    "pizza": {963},
    "broccoli": {937},
}


def _photographs_of(coco: Path, kinds: set[str], share: float) -> list[tuple[Path, str]]:
    """Photographs in which one object of a kind covers at least `share` of the picture."""
    photographs = []
    for split in ("train2017", "val2017"):
        annotations = json.loads((coco / "annotations" / f"instances_{split}.json").read_text())
        names = {c["id"]: c["name"] for c in annotations["categories"]}
        images = {i["id"]: i for i in annotations["images"]}
        for box in annotations["annotations"]:
            image, kind = images[box["image_id"]], names[box["category_id"]]
            large = box["bbox"][2] * box["bbox"][3] >= share * image["width"] * image["height"]
            if kind in kinds and large and not box["iscrowd"] and (coco / split / image["file_name"]).exists():
                photographs.append((coco / split / image["file_name"], kind))
    return list(dict.fromkeys(photographs))


def _folders(root: Path, photographs: list[tuple[Path, str]]) -> Path:
    """The ImageNet layout with a thousand classes, most of them one copied image, since a class must not be empty."""
    for index in range(1000):
        (root / "val" / f"{index:04d}").mkdir(parents=True)
        (root / "val" / f"{index:04d}" / "any.jpg").symlink_to(photographs[index % len(photographs)][0])
    return root


def test_imagenet_weights_see_what_is_on_photographs(real_data: Callable[[str], Path]) -> None:
    from vernier.config import Data
    from vernier.data.augment.crop_flip import EvalTransform
    from vernier.data.augment.normalize import Normalizer
    from vernier.data.decoding.decode import decode
    from vernier.engine.starting_weights import _load_weights

    photographs = _photographs_of(real_data("coco"), set(IMAGENET_OF_COCO), share=0.3)
    if len(photographs) < 8:
        pytest.skip("too few photographs of these kinds")
    model = build("resnet50-v1", num_classes=1000).eval()
    _load_weights(model, str(real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors"))
    data, hits = Data(), 0
    pixels = torch.empty((len(photographs), 224, 224, 3), dtype=torch.uint8)
    for row, (path, _) in enumerate(photographs):
        EvalTransform(data)(decode(path.read_bytes()), pixels[row].numpy())
    with torch.inference_mode():
        logits = model(Normalizer(data, torch.device("cpu"))(pixels.permute(0, 3, 1, 2)))
    for (_, kind), row in zip(photographs, logits.topk(5).indices.tolist(), strict=True):
        hits += bool(IMAGENET_OF_COCO[kind] & set(row))
    assert hits / len(photographs) > 0.7, f"{hits} of {len(photographs)}"


def test_v1_weights_are_not_taken_for_v15(
    vernier_here: Callable[..., Done], real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """The metadata of the file names its version."""
    photographs = [(path, "any") for path in sorted((real_data("coco") / "val2017").glob("*.jpg"))[:40]]
    file = real_data("resnet50-imagenet") / "resnet50-v1-imagenet.safetensors"
    arguments = ["eval", "--weights", str(file), "--data", str(_folders(tmp_path / "imagenet", photographs))]
    arguments += ["--max-eval-steps", "1", "--set", "machine.eval_batch=2"]
    refused = vernier_here(*arguments, "--model", "resnet50")
    assert refused.code == 2, refused.out
    assert "Use resnet50-v1" in refused.err
    accepted = vernier_here(*arguments, "--model", "resnet50-v1")
    assert accepted.code == 0, accepted.err


def test_an_exported_file_says_what_it_is_and_evaluates_the_same(
    trained: Path, shapes: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    out = tmp_path / "mine.safetensors"
    assert vernier_here("export", str(trained), "--out", str(out)).out.strip() == str(out)
    with safe_open(out, framework="pt") as file:
        about = file.metadata()
    assert about["model"] == "resnet8-small"
    assert len(json.loads(about["classes"])) == 10
    assert json.loads(about["averaged"]) is True
    ours = vernier_here("eval", str(trained), "--json").json()
    foreign = vernier_here(
        "eval",
        "--model",
        "resnet8-small",
        "--weights",
        str(out),
        "--data",
        str(shapes),
        "--set",
        "model.width=8",
        "--json",
    )
    assert foreign.code == 0, foreign.err
    assert foreign.json()["top1"] == ours["top1"]
    assert foreign.json()["loss"] == pytest.approx(ours["loss"], rel=1e-6)
    raw = tmp_path / "raw.safetensors"
    assert vernier_here("export", str(trained), "--out", str(raw), "--no-ema").code == 0
    assert not torch.equal(load_file(raw)["fc.weight"], load_file(out)["fc.weight"])
    again = vernier_here("export", str(trained), "--out", str(out))
    assert again.code == 2
    assert "exists already" in again.err


def test_torchvision_gets_only_what_it_has(
    tiny: list[str], vernier_here: Callable[..., Done], trained: Path, tmp_path: Path
) -> None:
    refused = vernier_here("export", str(trained), "--format", "torchvision", "--out", str(tmp_path / "x.pth"))
    assert refused.code == 2
    assert "torchvision has no such model" in refused.err
    big = ["--model", "resnet18", "--set", "model.stem=default", "--set", "model.width=64"]
    big += ["--out", str(tmp_path / "big")]
    done = vernier_here("train", *tiny, *big, "--max-steps", "1")
    assert done.code == 0, done.err
    out = tmp_path / "resnet18.pth"
    assert (
        vernier_here("export", str(only_run(tmp_path / "big")), "--format", "torchvision", "--out", str(out)).code == 0
    )
    state = torch.load(out, weights_only=True)
    assert set(state) == set(build("resnet18", num_classes=10).state_dict())


@pytest.fixture
def seven_classes(tmp_path: Path) -> Path:
    path = tmp_path / "seven.pth"
    torch.manual_seed(3)
    torch.save(
        {
            "state_dict": {
                f"module.{k}": v for k, v in build("resnet8-small", num_classes=7, width=8).state_dict().items()
            }
        },
        path,
    )
    return path


def _weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(next((run / "checkpoints").glob("step-*")) / "model.safetensors")


def test_fine_tuning_with_a_new_head(
    tiny: list[str], seven_classes: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    refused = vernier_here("train", *tiny, "--weights", str(seven_classes))
    assert refused.code == 2
    assert "--reset-head" in refused.err
    done = vernier_here(
        "train", *tiny, "--weights", str(seven_classes), "--reset-head", "--max-steps", "2", "--lr", "1e-9"
    )
    assert done.code == 0, done.err
    assert "weights from" in done.err
    assert "fc.weight, fc.bias start fresh" in done.err
    given = torch.load(seven_classes, weights_only=True)["state_dict"]
    ours = _weights_of(only_run(tmp_path / "runs"))
    torch.testing.assert_close(ours["layer2.0.conv1.weight"], given["module.layer2.0.conv1.weight"])
    assert ours["fc.weight"].shape[0] == 10


def test_only_the_head_learns_when_the_backbone_is_frozen(
    tiny: list[str], seven_classes: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    done = vernier_here(
        "train",
        *tiny,
        "--weights",
        str(seven_classes),
        "--reset-head",
        "--freeze",
        "backbone",
        "--epochs",
        "2",
        "--set",
        "ema.decay=0.5",
    )
    assert done.code == 0, done.err
    assert "tensors are frozen (backbone)" in done.err
    given = {
        k.removeprefix("module."): v for k, v in torch.load(seven_classes, weights_only=True)["state_dict"].items()
    }
    ours = _weights_of(only_run(tmp_path / "runs"))
    same = [k for k in ours if not k.startswith("fc.") and torch.equal(ours[k], given[k])]
    assert set(same) == {k for k in ours if not k.startswith("fc.")}, "frozen weights and statistics must not move"
    assert ours["fc.bias"].abs().max() > 0


def test_a_frozen_run_resumes_exactly(
    tiny: list[str], seven_classes: Path, vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    arguments = [
        "shapes-quick",
        *tiny,
        "--weights",
        str(seven_classes),
        "--reset-head",
        "--freeze",
        "layer1",
        "--freeze",
        "bn1",
        "--epochs",
        "1",
    ]
    whole = vernier_here("train", *arguments, "--out", str(tmp_path / "whole"), "--json")
    assert vernier_here("train", *arguments, "--max-steps", "4").code == 0
    seven_classes.unlink()  # the checkpoint has all that is needed
    run = only_run(tmp_path / "runs")
    resumed = vernier_here("train", *arguments, "--resume", str(run), "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json()["result"] == whole.json()["result"]
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    expected = sorted((only_run(tmp_path / "whole") / "checkpoints").glob("step-*"))[-1]
    assert (newest / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "/no/such.pth"], "does not exist"),
        (["--reset-head"], "needs a weights file"),
        (["--freeze", "layr1"], "Did you mean layer1"),
        (["--freeze", "backbone", "--freeze", "fc"], "Nothing is left to train"),
    ],
)
def test_wrong_fine_tuning_says_what_to_do(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = vernier_here("train", *tiny, *arguments)
    assert done.code == 2, done.err
    assert message in done.err
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_says_whether_it_agrees(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    shown = vernier_here("recipes", "show", "shapes-quick").out
    mine = tmp_path / "mine.toml"
    mine.write_text(shown + '\n[[published]]\nmean = 50.0\nsd = 0.5\nn = 5\nsamples = 50\nsource = "us"\n')
    own_network = [argument for argument in tiny if argument not in ("--model", "resnet8-small")]
    done = vernier_here("train", str(mine), *own_network, "--epochs", "1")
    assert done.code == 0, done.err
    assert "published  top1 50 +- 0.5 % over 5 runs (us): " in done.out
    assert "prediction interval 48.25 to 51.75" in done.out
    assert "global_batch 32 -> 16" in done.out
    status = json.loads((only_run(tmp_path / "runs") / "run.json").read_text())
    assert status["summary"]["agreement"]["verdict"] in ("above", "below", "inside")
