"""Every command of the pages "Coming from ...": worked out exactly as written, then run in small.

What is made smaller, and what stands in for hardware that is not here, is said at the head of each page.
"""

import json
import shlex
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.conftest import TINY, Done, only_run
from tests.data.archives import SYNSETS, jpeg_bytes, meta_mat, tar_bytes, write_devkit
from tests.documented import DOCS, Shown, commands, fences, parsed
from vernier import cli
from vernier import recipes as book
from vernier.config import Config, derive
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices import kinds
from vernier.models import build

PAGES = sorted(DOCS.glob("coming-from-*.md"))
OURS = [shown for page in PAGES for fence in fences(page) if fence.language == "sh" for shown in commands(fence)]
TRAININGS = [shown for shown in OURS if shown.words[0] == "train" and "--help" not in shown.words]


# ------------------------------------------------------------------------------------------------------- as written


def test_every_command_of_theirs_has_its_equivalent_or_a_reason() -> None:
    """A block of theirs (`bash`) is followed by one of ours (`sh`), or by a sentence that says why there is none."""
    alone = []
    for page in PAGES:
        text, blocks = page.read_text(encoding="utf-8"), list(fences(page))
        for fence, after in zip(blocks, [*blocks[1:], None], strict=True):
            said = text[fence.end :].lstrip().startswith("No equivalent: ")
            if fence.language == "bash" and not said and (after is None or after.language != "sh"):
                alone.append(f"{page.name}:{fence.line}")
    assert alone == []
    assert len(OURS) > 50


class Resolved(Exception):
    """Carries what `vernier train` was about to do."""

    def __init__(self, config: Config) -> None:
        self.config = config


def resolved(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> Config:
    """All settings of a training, worked out by the command itself."""

    def stop(config: Config) -> None:
        raise Resolved(config)

    monkeypatch.setattr(sys.modules["vernier.cli.model.train"], "with_procs", stop)
    given = parsed(shown.words)
    with pytest.raises(Resolved) as caught:
        cli.COMMANDS["train"](given.pop("0"), **given)
    return caught.value.config


@pytest.mark.parametrize("shown", TRAININGS, ids=str)
def test_settings_agree_as_they_are_written(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches divide, the schedule makes sense on the full data, and the device does what it is asked for."""
    config = resolved(shown, monkeypatch)
    derived = derive(config, train_samples=book.train_images(config.recipe))
    assert derived.process_batch * derived.accumulation * derived.world == config.recipe.global_batch
    assert derived.stop_step > 0
    machine = config.machine
    if machine.device == "hpu":  # the others' answers depend on the card
        assert kinds()["hpu"]().answer(machine.precision, machine.mode).verdict == "yes"


def test_rates_and_batches_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak rate, total batch and steps an epoch of the command lines whose arithmetic the READMEs give."""
    found = {}
    for shown in TRAININGS:
        config = resolved(shown, monkeypatch)
        derived = derive(config, train_samples=book.train_images(config.recipe))
        found[shown.line, shown.page.stem.rpartition("-")[2]] = (
            config.recipe.name,
            config.recipe.global_batch,
            round(derived.lr, 4),
            derived.accumulation,
            derived.steps_per_epoch,
        )
    seen = set(found.values())
    assert ("nvidia-resnet50-90e", 2048, 2.048, 1, 625) in seen  # 8 x 256
    assert ("nvidia-resnet50-90e", 256, 0.1, 1, 5004) in seen  # the defaults of main.py on one GPU
    assert ("nvidia-resnet50-90e", 2048, 0.1, 1, 625) in seen  # and on eight: the rate is not scaled
    assert ("habana-resnet50-sgd-1", 128, 0.1, 1, 10009) in seen  # -b 128, lr 0.1
    assert ("habana-ssd-1", 128, 0.012, 1, 916) in seen  # 3e-3 per 32 images; 917 steps there
    assert ("habana-tf-resnext101-90e", 1024, 1.024, 1, 1251) in seen  # 0.256 per 256 images, eight cards


# --------------------------------------------------------------------------------------------------------- in small


@dataclass(frozen=True)
class Stage:
    """What stands in for the reader's files: small sets, weights, a run of a classifier and one of a detector."""

    folder: Path
    shapes: Path
    boxes: Path

    def words(self, shown: Shown) -> tuple[str, ...]:
        """The command in small."""
        words = tuple(self._file(word) for word in shown.words)
        return words + tuple(self._smaller(words))

    def _file(self, word: str) -> str:
        name = Path(word).name
        if word.endswith("/RUN"):
            return str(only_run(self.folder / ("detector" if "ssd" in word else "classifier")))
        if name in ("traces", "resnet-longhorn-agg.csv"):
            return str(self.folder / name)
        known = ("resnet34.pth", "checkpoint.pth.tar", "longhorn", "as-the-study", "benchmark.json")
        return (
            str(self.folder / name)
            if name in known or name.startswith(("ILSVRC2012", "train2017", "val2017", "annotations_"))
            else word
        )

    def _smaller(self, words: tuple[str, ...]) -> list[str]:
        command = words[0] if words[0] not in ("bench", "study", "data") else " ".join(words[:2])
        return {
            "train": self._training,
            "eval": self._evaluation,
            "doctor": lambda w: ["--no-probe"],
            "bench train": self._benchmark,
            "bench infer": self._benchmark,
            "bench scaling": self._benchmark,
            "study run": lambda w: [
                "--workload",
                "sgemm",
                "--virtual",
                "2",
                "--iterations",
                "2",
                "--repeats",
                "1",
                "--pause",
                "0",
                "--kernels",
                "0",
                "--device",
                "cpu",
            ],
            "data prepare": self._preparation,
        }.get(command, lambda w: [])(words)

    def _data(self, words: tuple[str, ...]) -> str:
        return str(self.boxes if any("ssd" in w for w in words[1:3]) else self.shapes)

    def _training(self, words: tuple[str, ...]) -> list[str]:
        if "--help" in words:
            return []
        settings = {"machine.threads": "1", "machine.eval_batch": "8"}
        line = " ".join(words)
        if "machine.process_batch" in line:
            settings["machine.process_batch"] = "4"
        if "machine.backend" in line:
            settings["machine.backend"] = "native"
        more = [
            "--smoke",
            "--data",
            self._data(words),
            "--out",
            str(self.folder / "out"),
            "--resume",
            "never",
            "--no-tensorboard",
            "--workers",
            "1",
        ]
        more += ["--device", "cpu", "--procs", "1", "--global-batch", "8", "--max-steps", "2", "--max-eval-steps", "1"]
        more += ["--precision", "fp32"] if "--precision bf16" in line else []
        more += ["--allow-slow", "--train-only"] if "--precision fp16" in line else []
        more += ["--mode", "trace"] if "--mode compile" in line else []
        more += ["--profile-steps", "1:2"] if "--profile-steps" in line else []
        return more + [w for name, value in settings.items() for w in ("--set", f"{name}={value}")]

    def _evaluation(self, words: tuple[str, ...]) -> list[str]:
        more = ["--max-eval-steps", "1", "--set", "machine.threads=1", "--set", "machine.eval_batch=4"]
        narrow = [
            "--data",
            str(self.shapes),
            "--set",
            "model.width=16",
            "--set",
            "data.eval_px=64",
            "--set",
            "data.eval_short_side_px=64",
        ]
        return [*more, *narrow] if "--weights" in words else more

    def _benchmark(self, words: tuple[str, ...]) -> list[str]:
        more = [
            "--data",
            str(self.shapes),
            "--device",
            "cpu",
            "--steps",
            "2",
            "--repeats",
            "1",
            "--out",
            str(self.folder / "out"),
        ]
        settings = [
            "model.width=16",
            "data.image_px=32",
            "data.eval_px=32",
            "data.eval_short_side_px=32",
            "machine.threads=1",
        ]
        small = {
            "--batch": "4",
            "--mode": "trace",
            "--procs": "1",
            "--precision": "fp32",
        }
        wanted = {flag for flag in small if flag in words or (flag == "--procs" and words[1] == "train")}
        more += [w for flag, value in small.items() if flag in wanted for w in (flag, value)]
        return more + [w for s in settings for w in ("--set", s)]

    def _preparation(self, words: tuple[str, ...]) -> list[str]:
        counts = ["2", "6", "2"] if words[2] == "imagenet" else ["0", "1", "1"]
        return ["--expect", *counts, *(["--no-restarts"] if "shards" in words else [])]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, shapes: Path) -> Stage:
    folder = tmp_path_factory.mktemp("coming-from")
    made = Stage(
        folder, shapes, make_shapes(folder / "boxes", ShapesSpec(kind="detect", train=24, val=10, size_px=96, seed=5))
    )
    _files(folder)
    small = ["--max-steps", "2", "--max-eval-steps", "1", "--no-tensorboard"]
    assert cli.main(["train", "--data", str(shapes), "--out", str(folder / "classifier"), *small, *TINY]) == 0
    boxes = ["--smoke", "--data", str(made.boxes), "--set", "machine.threads=1"]
    assert cli.main(["train", "habana-ssd-1", "--out", str(folder / "detector"), *small, *boxes]) == 0
    run = only_run(folder / "classifier")
    assert cli.main(["convert", str(run), "--to", "dllogger", "--out", str(folder / "traces" / "log.json")]) == 0
    return made


def _files(folder: Path) -> None:
    """Weights in the form that each source has them, the tars and zips in miniature, and a table of the study."""
    torch.manual_seed(0)
    backbone = build("resnet34", num_classes=1000, width=16)
    torch.save(backbone.state_dict(), folder / "resnet34.pth")
    network = build("resnet50", num_classes=10, width=16)
    renamed = {"module." + name: tensor for name, tensor in network.state_dict().items()}
    torch.save({"epoch": 90, "arch": "resnet50", "state_dict": renamed}, folder / "checkpoint.pth.tar")
    inner = [(f"{s}.tar", tar_bytes([(f"{s}_{i}.JPEG", jpeg_bytes(20 * i)) for i in range(3)])) for s in SYNSETS]
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar_bytes(inner))
    (folder / "ILSVRC2012_img_val.tar").write_bytes(
        tar_bytes([(f"ILSVRC2012_val_{i:08d}.JPEG", jpeg_bytes(i)) for i in (1, 2)])
    )
    write_devkit(folder / "ILSVRC2012_devkit_t12.tar.gz", meta_mat(list(SYNSETS)), "1\n2\n")
    _coco_zips(folder)
    (folder / "traces").mkdir()
    head = "exp,reps,cabinet,node,device,train_time,mean_iter_dur,med_iter_dur,max_iter_dur,min_iter_dur"
    rows = [f"resnet,{r},c1,n1,{d},60,{0.1 + d / 100},0.1,0.12,0.09" for d in range(6) for r in range(3)]
    (folder / "resnet-longhorn-agg.csv").write_text("\n".join([head, *rows]) + "\n")


def _coco_zips(folder: Path) -> None:
    with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "w") as notes:
        for split in ("train", "val"):
            image = {"id": 1, "file_name": "000000000001.jpg", "width": 48, "height": 40}
            box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 20, 20], "area": 400, "iscrowd": 0}
            tree = {"images": [image], "annotations": [box], "categories": [{"id": 1, "name": "person"}]}
            notes.writestr(f"annotations/instances_{split}2017.json", json.dumps(tree))
            with zipfile.ZipFile(folder / f"{split}2017.zip", "w") as images:
                images.writestr(f"{split}2017/000000000001.jpg", jpeg_bytes(90))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_equivalent_runs(
    page: Path, stage: Stage, vernier_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ran: set[str] = set()
    failed = []
    for shown in (s for s in OURS if s.page == page):
        words = stage.words(shown)
        words = tuple(str(tmp_path / w.strip("/")) if w in ("/data/imagenet", "/data/coco") else w for w in words)
        same = "--help" if "--help" in words else f"{words[:2]} {parsed(words)}"
        if same not in ran:
            ran.add(same)
            done = vernier_here(*words)
            if done.code != 0:
                failed.append(f"{shown}\n  as {shlex.join(words)}\n  {done.code}: {done.err[-600:]}")
    assert not failed, "\n".join(failed)
    assert ran
