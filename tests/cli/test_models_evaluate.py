"""`vernier eval` as it is typed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import REPO, Done, only_run
from vernier.models import build

Vernier = Callable[..., Done]
SMALL = ["--set", "model.width=8", "--set", "model.stem=small", "--set", "machine.threads=1"]


@pytest.fixture
def trained(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> Path:
    done = vernier_here(
        "train", *tiny, "--max-steps", "4", "--set", "ema.decay=0.5", "--set", "checkpoint.every_steps=2"
    )
    assert done.code == 0, done.err
    return only_run(tmp_path / "runs")


def test_json_has_the_keys_of_the_first_version(trained: Path, vernier_here: Vernier) -> None:
    document = vernier_here("eval", str(trained), "--json").json()
    before = json.loads((REPO / "tests" / "golden" / "0.1" / "classifier-eval.json").read_text())
    assert set(before) <= set(document)
    assert set(document["compilation"]) == set(before["compilation"])


def test_every_checkpoint_of_a_run_is_evaluated_in_order(trained: Path, vernier_here: Vernier) -> None:
    documents = vernier_here("eval", str(trained), "--which", "all", "--json").json()
    assert [document["step"] for document in documents] == [2, 4]


def _scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    pytest.importorskip("tensorboard", reason="needs vernier[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return [(scalar.step, scalar.value) for scalar in read.Scalars(tag)]


def test_every_checkpoint_goes_to_tensorboard_once(trained: Path, vernier_here: Vernier) -> None:
    assert not vernier_here("eval", str(trained), "--which", "all", "--no-tensorboard").code
    assert not (trained / "tensorboard" / "eval").exists()
    done = vernier_here("eval", str(trained), "--which", "all")
    assert f"tensorboard --logdir {trained}" in done.err
    documents = vernier_here("eval", str(trained), "--which", "all", "--json").json()
    expected = [(document["step"], pytest.approx(document["top1"])) for document in documents]
    assert _scalars(trained / "tensorboard" / "eval", "val/top1") == expected


def test_a_run_that_cannot_be_written_is_evaluated_with_a_warning(trained: Path, vernier_here: Vernier) -> None:
    (trained / "tensorboard" / "eval").write_text("in the way")
    done = vernier_here("eval", str(trained), "--which", "all")
    assert done.code == 0
    assert "warning: TensorBoard's files cannot be written" in done.err


def test_the_text_names_the_weights_and_marks_a_part_of_the_set(trained: Path, vernier_here: Vernier) -> None:
    whole, part = vernier_here("eval", str(trained)), vernier_here("eval", str(trained), "--max-eval-steps", "1")
    assert "on 50 images of" in whole.out
    assert "averaged weights of step 4" in whole.out
    assert "PART" not in whole.out
    assert "on 16 images of" in part.out
    assert "PART of the set" in part.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "eval needs MODEL"),
        (["--weights", "{w}", "--data", "{d}"], "Give --model NAME"),
        (["--weights", "{w}", "--model", "resnet18"], "--data PATH"),
        (["--weights", "/no/such.pth", "--model", "resnet8-small", "--data", "{d}"], "/no/such.pth does not exist"),
        (["--weights", "{d}", "--model", "resnet8-small", "--data", "{d}"], "is a folder"),
        (["--weights", "{w}", "--model", "resnet8-small", "--data", "{d}", *SMALL], "7 classes, the data has 10"),
        (["--weights", "{w}", "--model", "resnet8-smal", "--data", "{d}"], "resnet8-small"),
        (
            ["--weights", "{w}", "--model", "resnet8-small", "--data", "{d}", "--set", "data.eval=3"],
            "Did you mean data.eval_px",
        ),
        (["{r}", "--model", "resnet18"], "--model is for weights files"),
        (["{r}", "--set", "model.blurpool=true"], "cannot be changed"),
        (["{r}", "--weights", "{w}", "--data", "{d}"], "one argument too many"),
    ],
)
def test_wrong_evaluations_are_refused_with_a_remedy(
    arguments: list[str], message: str, trained: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    seven = tmp_path / "seven.pth"
    torch.save(build("resnet8-small", num_classes=7, width=8).state_dict(), seven)
    done = vernier_here("eval", *(a.format(w=seven, d=shapes, r=trained) for a in arguments))
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_flip_augmentation_changes_the_scores_and_is_reported(trained: Path, vernier_here: Vernier) -> None:
    plain, flipped = vernier_here("eval", str(trained)), vernier_here("eval", str(trained), "--flip-tta")
    assert "test-time" not in plain.out
    assert "with flip test-time augmentation" in flipped.out
    assert flipped.out.split("loss")[1][:8] != plain.out.split("loss")[1][:8]


def test_another_engine_gives_the_same_result_and_the_line_says_what_ran(trained: Path, vernier_here: Vernier) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    own = vernier_here("eval", str(trained), "--json").json()
    done = vernier_here("eval", str(trained), "--engine", "onnxruntime")
    assert done.code == 0, done.err
    assert "fp32 onnxruntime " in done.out
    assert "note: checked in fp32 against PyTorch on 32 of these images: the same class for 32 of 32" in done.out
    assert f"top-1 {own['top1']:.2f} %" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--int8"], "--int8 needs another engine"),
        (["--set", "machine.convolution=winograd"], "machine.convolution has no effect here: it is for training"),
        (["--engine", "onnxruntime", "--mode", "compile"], "does not work with --mode compile"),
        (["--engine", "auto", "--set", "machine.precision=bf16"], "--set machine.precision=bf16"),
        (["--engine", "auto", "--procs", "2"], "runs in one process"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_at_once(
    vernier_here: Vernier, arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = vernier_here("eval", str(tmp_path), *arguments)
    assert done.code == 2
    assert words in done.err
