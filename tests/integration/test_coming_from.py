"""Every command of the pages "Coming from ...": worked out exactly as written, then run in small.

What is made smaller, and what stands in for hardware that is not here, is said at the head of each page.
"""

import json
import re
import shlex
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.conftest import TINY, Done, only_run
from tests.data.archives import SYNSETS, jpeg_bytes, meta_mat, tar_bytes, write_devkit
from tests.documented import DOCS, Shown, commands, fences, parsed
from tests.integration.originals import Original, read
from vernier import cli
from vernier import recipes as book
from vernier.api.training import _training_of
from vernier.config import Config, derive, override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices import kinds
from vernier.models import build
from vernier.optim.schedules import learning_rate
from vernier.requests.training import Train

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


def resolved(shown: Shown) -> Config:
    """All settings of a training run, worked out as the command does it."""
    request = parsed(shown.words)
    assert isinstance(request, Train)
    return _training_of(request).config


@pytest.mark.parametrize("shown", TRAININGS, ids=str)
def test_settings_agree_as_they_are_written(shown: Shown) -> None:
    """Batches divide, the schedule makes sense on the full data, and the device does what it is asked for."""
    config = resolved(shown)
    derived = derive(config, train_samples=book.train_images(config.recipe))
    assert derived.process_batch * derived.accumulation * derived.world == config.recipe.global_batch
    assert derived.stop_step > 0
    machine = config.machine
    if machine.device == "hpu":  # the others' answers depend on the card
        assert kinds()["hpu"]().answer(machine.precision, machine.mode).verdict == "yes"


# ------------------------------------------------------------------------------------------------- as their documents


@dataclass(frozen=True)
class Pair:
    """A command line of a document, as numbers, and its equivalent; `processes` where a launcher starts them."""

    theirs: Original
    ours: Shown
    processes: int | None

    def __str__(self) -> str:
        return str(self.ours)


def _pairs() -> Iterator[Pair]:
    """Each line of theirs that trains or measures, with ours: the same number of them, in the same order."""
    for page in PAGES:
        blocks = list(fences(page))
        for before, after in pairwise(blocks):
            if (before.language, after.language) != ("bash", "sh"):
                continue
            originals = [original for _, line in before.lines() if (original := read(line)) is not None]
            lines, equivalents = dict(after.lines()), list(commands(after))
            if originals:
                for theirs, ours in zip(originals, equivalents, strict=True):
                    launched = re.search(r"mpirun .*-np (\d+)", lines[ours.line])
                    yield Pair(theirs, ours, int(launched[1]) if launched else None)


PAIRS = list(_pairs())


def test_every_line_of_a_document_that_trains_or_measures_is_compared() -> None:
    """NVIDIA: 12 scripts, DALI, 4 trainings, 6 benchmarks. Habana: 7 of ResNet-50, 5 of SSD, 6 of ResNeXt."""
    counts = Counter((pair.ours.page.stem, pair.ours.words[0]) for pair in PAIRS)
    nvidia, habana = "coming-from-nvidia", "coming-from-habana"
    assert counts == {(nvidia, "train"): 17, (nvidia, "bench"): 6, (habana, "train"): 18}


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.theirs.task == "train"], ids=str)
def test_a_training_is_the_documents(pair: Pair) -> None:
    """Devices, batches, precision, mode, length, rate, decay and loss scale are those of the document's line."""
    theirs, config = pair.theirs, resolved(pair.ours)
    if pair.processes is not None:
        config = override(config, "machine.procs", pair.processes)
    recipe, machine, limits = config.recipe, config.machine, config.limits
    derived = derive(config, train_samples=book.train_images(recipe))
    assert (derived.world, derived.process_batch, derived.accumulation) == (
        theirs.devices,
        theirs.device_batch,
        theirs.accumulation,
    )
    assert recipe.global_batch == theirs.global_batch
    assert machine.precision == theirs.precision
    assert recipe.schedule.epochs == theirs.epochs
    assert (limits.max_steps, limits.max_eval_steps) == (theirs.steps, theirs.eval_steps)
    assert theirs.mode in (None, machine.mode)
    if theirs.lr is not None:
        assert derived.lr == pytest.approx(theirs.lr)
    if theirs.first_lr is not None:
        assert learning_rate(0, recipe.schedule, derived) == pytest.approx(theirs.first_lr)
    if theirs.weight_decay is not None:
        assert recipe.optim.weight_decay == pytest.approx(theirs.weight_decay)
    if theirs.loss_scale is not None:
        assert (machine.loss_scaling, machine.loss_scale) == ("static", theirs.loss_scale)
    if theirs.steps_per_epoch is not None:
        assert derived.steps_per_epoch == theirs.steps_per_epoch
        assert derived.total_steps == theirs.steps_per_epoch * int(theirs.epochs or 0)
    if theirs.profile is not None:
        request = parsed(pair.ours.words)
        assert isinstance(request, Train)
        assert request.profile_steps == "{}:{}".format(*theirs.profile)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.theirs.task != "train"], ids=str)
def test_a_benchmark_is_the_documents(pair: Pair) -> None:
    theirs, words = pair.theirs, pair.ours.words
    assert " ".join(words[:2]) == theirs.task

    def flag(name: str, default: str) -> str:
        return words[words.index(name) + 1] if name in words else default

    assert (flag("--batch", ""), flag("--procs", "1")) == (str(theirs.device_batch), str(theirs.devices))
    assert (flag("--steps", ""), flag("--precision", "fp32")) == (str(theirs.steps), theirs.precision)
    scale = [word for word in words if word.startswith("machine.loss_scal")]
    expected = ["machine.loss_scaling=static", f"machine.loss_scale={theirs.loss_scale:g}"] if theirs.loss_scale else []
    assert scale == expected


def test_steps_are_the_numbers_that_habanas_document_gives() -> None:
    """917 and 58,688 on one card, twice; 115 and 7,360 on eight."""
    seen = []
    for pair in PAIRS:
        if pair.theirs.steps_per_epoch is not None and pair.theirs.epochs == 64:
            config = resolved(pair.ours)
            derived = derive(config, train_samples=book.train_images(config.recipe))
            seen.append((derived.steps_per_epoch, derived.total_steps))
    assert seen == [(917, 58_688), (917, 58_688), (115, 7_360)]


def test_the_raport_line_has_the_batch_of_theirs() -> None:
    (line,) = [s for s in TRAININGS if "--train-only" in s.words and "nvidia" in s.page.stem]
    config = resolved(line)
    assert (config.recipe.global_batch, config.machine.procs, config.limits.max_steps) == (256, 1, 100)


def test_the_studys_load_is_its_scripts() -> None:
    """run-resnet.sh: 4 GPUs, batch 64 each, base rate 0.05 times 4; engine.py: 500 iterations."""
    (line,) = [s for s in TRAININGS if "study" in s.page.stem]
    config = resolved(line)
    derived = derive(config, train_samples=book.train_images(config.recipe))
    assert (derived.world, derived.process_batch, derived.lr, derived.stop_step) == (4, 64, pytest.approx(0.2), 500)
    (study,) = [s.words for s in OURS if s.words[:2] == ("study", "run")]
    assert [study[study.index(flag) + 1] for flag in ("--batch", "--iterations")] == ["64", "500"]


MPIRUN = (
    *("--mca btl_tcp_if_include 192.10.100.174/24", "--prefix $MPI_ROOT", "-x GC_KERNEL_PATH", "-x HABANA_LOGS"),
    *("--mca plm_rsh_args -p3022", "--bind-to core", "--map-by socket:PE=7", "-H 192.10.100.174:8,10.10.100.101:8,"),
    *("-x HCCL_SOCKET_IFNAME=", "--merge-stderr-to-stdout"),
)


def test_flags_of_mpirun_are_kept_or_their_absence_is_explained() -> None:
    """Every flag of their mpirun lines stands in ours, apart from PYTHONPATH, which the page explains."""
    page = next(p for p in PAGES if "habana" in p.stem)
    lines = [line for fence in fences(page) if fence.language == "sh" for _, line in fence.lines() if "mpirun" in line]
    assert len(lines) == 5
    assert all("--allow-run-as-root" in line for line in lines)
    assert all(flag in lines[3] for flag in (*MPIRUN, "--tag-output", "--output-filename"))
    assert "`-x PYTHONPATH` is gone" in page.read_text()


@pytest.mark.parametrize(
    "name",
    [
        "FORCE_HABANA_IMAGENET_LOADER_FALLBACK",
        "TF_DISABLE_SCOPED_ALLOCATOR",
        "TF_BF16_CONVERSION",
        "mini_imagenet",
        "permuted",
        "--save-checkpoint",
    ],
)
def test_what_has_no_flag_is_mentioned(name: str) -> None:
    assert name in next(p for p in PAGES if "habana" in p.stem).read_text()


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
            "doctor": lambda w: [],
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
            (stage.folder / "benchmark.json").unlink(missing_ok=True)  # nothing is overwritten
            done = vernier_here(*words)
            if done.code != 0:
                failed.append(f"{shown}\n  as {shlex.join(words)}\n  {done.code}: {done.err[-600:]}")
    assert not failed, "\n".join(failed)
    assert ran
