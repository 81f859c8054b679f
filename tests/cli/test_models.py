"""`vernier eval`, `predict` and `export` as they are typed: which model they are about, what they print and refuse."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import REPO, TINY, Done, only_run
from tests.data.http_server import Server
from tests.integration.test_detect import boxes, train  # noqa: F401
from tests.refusals import config_error_of, names_given, what_works
from vernier.cli import main
from vernier.data.downloads import MIRROR, TORCHVISION
from vernier.data.sources import open_split
from vernier.engine.inference.preparation import published_as
from vernier.models import build

Vernier = Callable[..., Done]

# ------------------------------------------------------------------------------------------------------------ the model


@pytest.fixture
def external(tmp_path: Path) -> Path:
    torch.save(build("resnet8-small", num_classes=3).state_dict(), tmp_path / "external.pth")
    return tmp_path / "external.pth"


def test_weights_are_the_model_whether_they_have_the_flag_or_not(
    external: Path, shapes: Path, vernier_here: Vernier
) -> None:
    photo = str(next((shapes / "val" / "disc").iterdir()))
    named = ["--model", "resnet8-small", "--classes", "cat,dog,emu", "--json"]
    by_flag, by_place = (
        vernier_here("predict", "--weights", str(external), photo, *named),
        vernier_here("predict", str(external), photo, *named),
    )
    assert by_flag.code == 0, by_flag.err
    assert by_flag.json() == by_place.json()
    assert by_flag.json()["classes"] == ["cat", "dog", "emu"]
    for command in ("eval", "predict", "export"):
        assert vernier_here(command).code == 2
        assert vernier_here(command, "/no/such", "x").code == 2


@pytest.fixture
def files(external: Path, shapes: Path, tmp_path: Path) -> dict[str, Path]:
    """Files and folders by the names that command lines of these tests have for them."""
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    (tmp_path / "twice.txt").write_text("cat\ndog\ncat\n")
    (tmp_path / "other.onnx").write_bytes(b"\x08\x08")
    torch.save(build("resnet8-small", num_classes=7, width=8).state_dict(), tmp_path / "seven.pth")
    (tmp_path / "folder").mkdir()
    names = {name: tmp_path / name for name in ("folder", "two.txt", "twice.txt", "other.onnx", "seven.pth")}
    return {name.partition(".")[0]: path for name, path in names.items()} | {
        "external": external,
        "shapes": shapes,
        "photo": next((shapes / "val" / "disc").iterdir()),
    }


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("predict --weights /no/such.pth {photo}", "source", ""),
        ("predict --weights {external} {photo}", "", "model=NAME models"),
        ("predict {external} --which best {photo}", "which", ""),
        ("predict {external} --model resnet8-small --classes /no/such {photo}", "classes", ""),
        ("predict {external} --model resnet8-small --classes {twice} {photo}", "classes", ""),
        ("predict {folder} --classes {two} {photo}", "classes", ""),
        ("predict {folder} --data shapes {photo}", "data", ""),
        ("predict {other} {photo}", "", "export model=NAME"),
        ("eval --weights {seven} --data {shapes}", "", "model=NAME models"),
        ("eval --weights {seven} --model resnet18", "", "data.source=PATH"),
        ("eval --weights /no/such.pth --model resnet8-small --data {shapes}", "source", ""),
        ("eval --weights {shapes} --model resnet8-small --data {shapes}", "model", ""),
        ("eval {seven} --model resnet8-small --data {shapes} --set model.width=8", "", "classes=FILE"),
        ("eval {folder} --model resnet18", "model", ""),
        ("eval {folder} --int8", "machine.int8", "machine.engine=onnxruntime machine.engine=auto"),
        ("eval {folder} --set machine.convolution=winograd", "machine.convolution", ""),
        (
            "eval {folder} --engine onnxruntime --mode compile",
            "machine.engine machine.mode",
            "machine.mode=eager machine.engine=torch",
        ),
        (
            "eval {folder} --engine auto --set machine.precision=bf16",
            "machine.engine machine.precision",
            "machine.int8=true machine.precision=fp32 machine.engine=torch",
        ),
        ("eval {folder} --engine auto --procs 2", "machine.engine machine.procs", "machine.procs=1"),
        ("eval {folder} --max-eval-steps 0", "max_eval_steps", ""),
        ("export {folder} --format onn", "format", ""),
    ],
)
def test_wrong_choices_are_refused_by_their_option(words: str, given: str, works: str, files: dict[str, Path]) -> None:
    error = config_error_of(*words.format(**files).split())
    assert (names_given(error), what_works(error)) == (given, works)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("predict --weights {folder} {photo}", "{folder}"),
        ("predict {external} --model resnet8 {photo}", "resnet8"),
        ("predict {external} --model resnet18 {photo}", "resnet8-small"),
        ("predict {external} --model resnet8-small", "IMAGE"),
        ("predict --weights {external} --model resnet8-small", "IMAGE"),
        ("predict {external} --model resnet8-small --classes {two} {photo}", "3 classes"),
        ("predict {external} --model resnet8-small --ema {photo}", "{external}"),
        ("eval", "MODEL"),
        ("eval --weights {seven} --model resnet8-smal --data {shapes}", "resnet8-small"),
        ("eval {seven} --model resnet8-small --data {shapes} --set data.eval=3", "data.eval_px"),
        ("eval {folder} --weights {seven} --data {shapes}", "{folder}"),
    ],
)
def test_what_does_not_fit_is_named(words: str, named: str, files: dict[str, Path], vernier_here: Vernier) -> None:
    done = vernier_here(*words.format(**files).split())
    assert (done.code, done.out) == (2, "")
    assert named.format(**files) in done.err
    assert "Traceback" not in done.err


def test_published_weights_are_evaluated_and_trained_from_by_name(
    shapes: Path, tiny: list[str], tmp_path: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher on loopback; the network is a small one, and its file carries the hash of its weights."""
    assert published_as(Path(TORCHVISION["resnet18"])) is not None
    torch.save(build("resnet8-small", num_classes=10, width=8).state_dict(), tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    server, file = Server(), f"resnet18-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    server.files[file] = content
    monkeypatch.setitem(TORCHVISION, "resnet18", file)
    monkeypatch.setenv(MIRROR, server.url)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    try:
        named = ("--model", "resnet8-small", "--weights", "torchvision:resnet18")
        settings = ("--set", "model.width=8", "--set", "data.eval_px=32", "--set", "data.eval_short_side_px=32")
        evaluated = vernier_here("eval", *named, "--data", str(shapes), *settings, "--json")
        assert evaluated.code == 0, evaluated.err
        assert evaluated.json()["samples"] == 50
        assert f"fetching torchvision:resnet18 from {server.url}/{file}" in evaluated.err
        trained = vernier_here("train", *tiny, *named[2:], "--max-steps", "1", "--train-only", "--json")
        assert trained.code == 0, trained.err
        config = json.loads((Path(trained.json()["run"]) / "config.json").read_text())
        assert config["recipe"]["model"]["weights"] == "torchvision:resnet18", "the name, not a path of this machine"
        assert server.hits == 1
    finally:
        server.close()


# ----------------------------------------------------------------------------------------------------------------- eval


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
    ("words", "given"),
    [("--model resnet18", "model"), ("--set model.blurpool=true", "model.blurpool"), ("--classes cat,dog", "classes")],
)
def test_what_a_run_has_itself_cannot_be_changed(words: str, given: str, trained: Path) -> None:
    assert names_given(config_error_of("eval", str(trained), *words.split())) == given


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


# -------------------------------------------------------------------------------------------------------------- predict


@pytest.fixture(scope="module")
def classifier(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained classifier."""
    out = tmp_path_factory.mktemp("runs")
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY]) == 0
    return only_run(out)


def test_predictions_are_those_that_evaluation_counts(
    classifier: Path, vernier_here: Vernier, shapes: Path, tmp_path: Path
) -> None:
    done = vernier_here("predict", str(classifier), str(shapes / "val"), "--out", str(tmp_path / "out"), "--json")
    assert done.code == 0, done.err
    images = json.loads(done.out)["images"]
    right = sum(Path(i["image"]).parent.name == i["found"][0]["class"] for i in images)
    scored = json.loads(vernier_here("eval", str(classifier), "--json").out)
    assert len(images) == scored["samples"]
    assert 100 * right / len(images) == pytest.approx(scored["top1"])
    for image in images:
        scores = [guess["score"] for guess in image["found"]]
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) <= 1.0001
    assert json.loads((tmp_path / "out" / "predictions.json").read_text())["images"] == images
    with Image.open(tmp_path / "out" / "sheet.png") as sheet:
        assert sheet.width > 300


def test_an_engine_is_checked_on_the_images_and_named(classifier: Path, vernier_here: Vernier, shapes: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    images = str(shapes / "val")
    own = json.loads(vernier_here("predict", str(classifier), images, "--json").out)["images"]
    done = vernier_here("predict", str(classifier), images, "--engine", "onnxruntime")
    assert done.code == 0, done.err
    assert "engine: onnxruntime " in done.err
    assert "the same class for 32 of 32" in done.err
    other = json.loads(vernier_here("predict", str(classifier), images, "--engine", "onnxruntime", "--json").out)[
        "images"
    ]
    assert [i["found"][0]["class"] for i in other] == [i["found"][0]["class"] for i in own]


def test_any_size_and_mode_can_be_predicted(classifier: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    modes = {"L": 90, "RGBA": (1, 2, 3, 4), "CMYK": (9, 9, 9, 9), "P": 3, "1": 1}
    for mode, colour in modes.items():
        suffix = "jpg" if mode == "CMYK" else "png"
        Image.new(mode, (7 + len(mode) * 40, 200), colour).save(tmp_path / f"{mode}.{suffix}")  # type: ignore[arg-type]
    names = [f"{mode}.png" for mode in ("L", "RGBA", "P", "1")] + ["CMYK.jpg"]
    done = vernier_here("predict", str(classifier), *(str(tmp_path / name) for name in names))
    assert done.code == 0, done.err
    assert done.out.count(" %") == 25


def test_a_broken_image_is_named_and_the_others_are_done(
    classifier: Path, vernier_here: Vernier, shapes: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    good = next((shapes / "val" / "disc").iterdir())
    done = vernier_here("predict", str(classifier), str(tmp_path / "broken.jpg"), str(good), "--json")
    assert done.code == 1
    broken, fine = json.loads(done.out)["images"]
    assert broken["error"]
    assert not broken["found"]
    assert len(fine["found"]) == 5


def test_missing_inputs_are_named(classifier: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, *more in (["none.jpg"], ["empty"], ["file", "--out", str(tmp_path / "file")]):
        done = vernier_here("predict", str(classifier), str(tmp_path / name), *more)
        assert done.code == 2, name
        assert str(tmp_path / name) in done.err


# --------------------------------------------------------------------------------------------------------------- export


@pytest.fixture(scope="module")
def averaged(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained classifier with two outputs that no class has, and averaged weights."""
    out = tmp_path_factory.mktemp("runs")
    extra = ["--set", "ema.decay=0.5", "--set", "model.unused_outputs=2", "--max-steps", "6"]
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY, *extra]) == 0
    return only_run(out)


def _pixels(shapes: Path, count: int) -> np.ndarray:
    source = open_split(str(shapes), "val")
    return np.stack([source.image(i) for i in range(count)]).transpose(0, 3, 1, 2).copy()


def _predicted(run: Path, shapes: Path, vernier_here: Vernier) -> list[str]:
    done = vernier_here("predict", str(run), str(shapes / "val"), "--json")
    return [image["found"][0]["class"] for image in done.json()["images"]]


def test_onnx_gives_the_same_classes_in_another_runtime(
    averaged: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    out = tmp_path / "mine.onnx"
    done = vernier_here("export", str(averaged), "--format", "onnx", "--out", str(out), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert document["check"]["same_top1"] == document["check"]["images"] == 50
    assert 0 <= document["check"]["max_difference"] < 1e-3
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    expected = _predicted(averaged, shapes, vernier_here)
    for count in (1, 7):
        (logits,) = session.run(["logits"], {"images": _pixels(shapes, count)})
        assert logits.shape == (count, 10)
        assert [classes[c] for c in logits.argmax(1)] == expected[:count]
    card = (tmp_path / "model_card.md").read_text()
    assert f"{document['check']['max_difference']:.2g}" in card
    assert "the same class for 50 of 50" in card
    assert list(tmp_path.glob(".*")) == []


def test_an_exported_network_can_take_normalised_images(
    averaged: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    out = tmp_path / "mine.onnx"
    done = vernier_here("export", str(averaged), "--normalized-input", "--out", str(out))
    assert done.code == 0, done.err
    assert done.out.strip() == str(out)
    assert "the same class for 50 of 50" in done.err
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    mean, std = (torch.tensor(json.loads(about[k])).view(1, 3, 1, 1) for k in ("mean", "std"))
    images = (torch.from_numpy(_pixels(shapes, 9)) / 255 - mean) / std
    (logits,) = session.run(["logits"], {"images": images.numpy()})
    classes = [json.loads(about["classes"])[c] for c in logits.argmax(1)]
    assert classes == _predicted(averaged, shapes, vernier_here)[:9]


def test_one_card_for_the_same_weights_and_another_for_others(
    averaged: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        assert vernier_here("export", str(averaged), "--out", str(tmp_path / name)).code == 0
    card = (tmp_path / "model_card.md").read_text()
    assert card.count(": resnet8-small, 10 classes\n") == 1
    assert "`a.safetensors`" in card
    assert "`b.safetensors`" in card
    for section in ("Model", "Result", "Recipe", "Data", "Trained on", "Limits", "Files"):
        assert f"\n## {section}\n" in card
    assert "6 of 60 steps" in card
    assert "on 50 validation images" in card
    other = vernier_here(
        "export", str(averaged), "--no-ema", "--out", str(tmp_path / "raw.safetensors"), "--json"
    ).json()
    assert Path(other["card"]).name == "raw.safetensors.model_card.md"
    assert "not exactly the weights that were evaluated" in Path(other["card"]).read_text()
    assert (tmp_path / "model_card.md").read_text() == card
    bare = vernier_here(
        "export", str(averaged), "--no-card", "--out", str(tmp_path / "bare.safetensors"), "--json"
    ).json()
    assert bare["card"] is None


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("--format onnx --data /no/such/place", "", "data.source=PATH"),
        ("--format onnx --data {shapes}/val/disc", "", "data.source=PATH"),
        ("--format safetensors --normalised-input", "format normalized_input", "format=onnx"),
        ("--format onnx --out /no/such/folder/x.onnx", "out", ""),
        ("--which 77", "", ""),
    ],
)
def test_wrong_exports_are_refused_and_write_nothing(
    averaged: Path,
    shapes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    given: str,
    works: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    error = config_error_of("export", str(averaged), *words.format(shapes=shapes).split())
    assert (names_given(error), what_works(error)) == (given, works)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
@pytest.mark.parametrize("form", ["safetensors", "onnx"])
def test_a_folder_without_write_permission_is_an_error(averaged: Path, vernier_here: Vernier, form: str) -> None:
    done = vernier_here("export", str(averaged), "--format", form, "--out", "/proc/self/x.bin")
    assert done.code == 2
    assert "Cannot write /proc/self/x.bin" in done.err
    assert "Traceback" not in done.err


def test_a_detector_is_exported_with_both_outputs(
    boxes: Path,  # noqa: F811
    vernier_here: Vernier,
    tmp_path: Path,
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    assert train(vernier_here, boxes, tmp_path / "runs", "--max-steps", "2", "--train-only").code == 0
    run, out = str(only_run(tmp_path / "runs")), tmp_path / "ssd.onnx"
    done = vernier_here("export", run, "--out", str(out), "--json")
    assert done.code == 0, done.err
    assert done.json()["check"]["same_top1"] is None
    assert done.json()["check"]["images"] == 10
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    offsets, logits = session.run(["offsets", "logits"], {"images": np.zeros((3, 3, 96, 96), np.uint8)})
    assert offsets.shape == (3, 756, 4)
    assert logits.shape == (3, 756, 11)
    assert "whole image resized to 96 x 96, bilinear" in (tmp_path / "model_card.md").read_text()
    refused = vernier_here("export", run, "--format", "torchvision", "--out", str(tmp_path / "ssd.pth"))
    assert (refused.code, (tmp_path / "ssd.pth").exists()) == (2, False)
