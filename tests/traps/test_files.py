"""Exported files and weights of others: what a command does with them is what its words say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vernier as v
from tests.bench_requests import bench_requests  # noqa: F401
from tests.conftest import TINY, Done, only_run
from tests.engine.inference.loading import load_trained
from tests.integration.test_detect import boxes  # noqa: F401
from tests.integration.test_detect import train as train_detector
from vernier.cli import main
from vernier.config import config_from_tree, override
from vernier.engine.inference.export import export
from vernier.engine.inference.model_file import kind_of
from vernier.engine.inference.trained import config_of_file
from vernier.lab.measured.workloads import InferenceLoad
from vernier.lab.records.bench import BenchRequest
from vernier.models import build
from vernier.records.codec import encode

Vernier = Callable[..., Done]
FORMS = {"safetensors": "x.safetensors", "torchvision": "x.pth", "onnx": "x.onnx"}


def _train(shapes: Path, out: Path, *extra: str) -> Path:
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY, *extra]) == 0
    return only_run(out)


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of another width and stem than its name says, trained for some steps, evaluated twice."""
    extra = ["--max-steps", "20", "--epochs", "2", "--set", "ema.decay=0.5"]
    return _train(shapes, tmp_path_factory.mktemp("runs"), *extra)


@pytest.fixture(scope="module")
def resnet18(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network that torchvision has."""
    extra = ["--model", "resnet18", "--set", "model.width=64", "--set", "model.stem=default", "--max-steps", "1"]
    return _train(shapes, tmp_path_factory.mktemp("runs"), *extra)


def _figures(vernier_here: Vernier, *arguments: str) -> tuple[float, float]:
    done = vernier_here("eval", *arguments, "--json")
    assert done.code == 0, done.err
    document = done.json()
    return document["top1"], round(document["loss"], 4)


def _classes(vernier_here: Vernier, model: Path, images: Path) -> list[str]:
    done = vernier_here("predict", str(model), str(images), "--json")
    assert done.code == 0, done.err
    return [image["found"][0]["class"] for image in done.json()["images"]]


@pytest.mark.parametrize("form", ["safetensors", "onnx"])
def test_an_exported_file_is_evaluated_and_predicts_with_nothing_more(
    form: str, run: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """The documented round trip failed: an exported file did not say its width, stem and image size."""
    if form == "onnx":
        pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    file = tmp_path / FORMS[form]
    done = vernier_here("export", str(run), "--format", form, "--out", str(file))
    assert done.code == 0, done.err
    moved = (tmp_path / "elsewhere" / file.name).absolute()
    moved.parent.mkdir()
    file.rename(moved)  # without its card
    data = ("--data", str(shapes))
    assert _figures(vernier_here, str(moved), *data) == _figures(vernier_here, str(run), *data)
    images = shapes / "val" / "disc"
    assert _classes(vernier_here, moved, images) == _classes(vernier_here, run, images)


def test_an_exported_detector_is_evaluated_with_nothing_more(
    boxes: Path,  # noqa: F811
    vernier_here: Vernier,
    tmp_path: Path,
) -> None:
    """The same of a detector, whose file has to say its default boxes too."""
    assert train_detector(vernier_here, boxes, tmp_path / "runs", "--max-steps", "2", "--train-only").code == 0
    run = only_run(tmp_path / "runs")
    expected = vernier_here("eval", str(run), "--json").json()
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    for form in ("safetensors", "onnx"):
        file = tmp_path / FORMS[form]
        assert vernier_here("export", str(run), "--format", form, "--out", str(file)).code == 0
        done = vernier_here("eval", str(file), "--data", str(boxes), "--json")
        assert done.code == 0, done.err
        assert done.json()["AP"] == pytest.approx(expected["AP"], abs=1e-6)
        assert done.json()["detections"] == expected["detections"]


def test_a_torchvision_file_describes_itself_and_torchvision_still_loads_it(
    resnet18: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """A .pth carried no classes and no preparation; what it carries now must not disturb torchvision."""
    file = tmp_path / "x.pth"
    assert vernier_here("export", str(resnet18), "--format", "torchvision", "--out", str(file)).code == 0
    data = ("--data", str(shapes))
    assert _figures(vernier_here, str(file), *data) == _figures(vernier_here, str(resnet18), *data)
    state = torch.load(file, weights_only=True)
    build("resnet18", num_classes=10).load_state_dict(state, strict=True)
    torchvision = pytest.importorskip("torchvision", reason="needs torchvision")
    torchvision.models.resnet18(num_classes=10).load_state_dict(state)


def test_torchvision_export_of_another_width_is_refused(shapes: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    """`--format torchvision` of a network that torchvision cannot build ended with 0, and the file did not load."""
    narrow = ["--model", "resnet18", "--set", "model.width=8", "--set", "model.stem=imagenet", "--max-steps", "1"]
    run = _train(shapes, tmp_path / "runs", *narrow)
    done = vernier_here("export", str(run), "--format", "torchvision", "--out", str(tmp_path / "x.pth"))
    assert done.code == 2
    assert "torchvision's is resnet18 as published" in done.err
    assert "--format safetensors" in done.err
    assert not (tmp_path / "x.pth").exists()


def test_weights_of_others_are_predicted_and_exported_without_a_training(
    run: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """`predict` and `export` took runs only: weights of others needed a dummy training."""
    theirs, names = tmp_path / "theirs.pth", tmp_path / "names.txt"
    torch.save({"net": build("resnet8-small", num_classes=3).state_dict()}, theirs)
    names.write_text("cat\ndog\ncow\n")
    image = next((shapes / "val" / "disc").iterdir())
    chosen = ["--model", "resnet8-small", "--weights", str(theirs)]
    done = vernier_here("predict", *chosen, str(image))
    assert done.code == 0, done.err
    assert "they are called 0 to 2; --classes FILE names them" in done.err
    done = vernier_here("predict", *chosen, "--classes", str(names), str(image), "--json")
    assert {guess["class"] for guess in done.json()["images"][0]["found"]} == {"cat", "dog", "cow"}
    out = tmp_path / "x.safetensors"
    assert vernier_here("export", *chosen, "--classes", str(names), "--out", str(out)).code == 0
    assert vernier_here("predict", str(out), str(image), "--json").json()["classes"] == ["cat", "dog", "cow"]
    assert "ask whoever published `theirs.pth`" in (tmp_path / "model_card.md").read_text()


def test_weights_of_others_are_evaluated_on_some_of_their_classes(
    shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """Weights with more classes than the data could not be evaluated at all."""
    theirs, names = tmp_path / "theirs.pth", tmp_path / "names.txt"
    torch.save(build("resnet8-small", num_classes=12).state_dict(), theirs)
    classes = sorted(folder.name for folder in (shapes / "val").iterdir())
    names.write_text("\n".join(["aardvark", *classes, "zebra"]))
    chosen = ["--model", "resnet8-small", "--weights", str(theirs), "--data", str(shapes)]
    assert vernier_here("eval", *chosen).code == 2
    done = vernier_here("eval", *chosen, "--classes", str(names))
    assert done.code == 0, done.err
    assert "10 of the model's 12 classes are in this data" in done.out


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("resnet50-11ad3fa6.pth", "short side 232, centre 224, bilinear"),
        ("resnet50-0676ba61.pth", "short side 256, centre 224, bilinear"),
        ("theirs.pth", "Vernier's default"),
    ],
)
def test_eval_prints_how_it_prepares_images_and_knows_published_files(
    file: str, words: str, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """`eval --weights` always used 256/224 bilinear, also for files published with another preparation, silently."""
    torch.save(build("resnet50", num_classes=10, width=8).state_dict(), tmp_path / file)
    arguments = ["--model", "resnet50", "--weights", str(tmp_path / file), "--data", str(shapes)]
    fast = ["--set", "model.width=8", "--max-eval-steps", "1", "--set", "machine.eval_batch=2"]
    done = vernier_here("eval", *arguments, *fast)
    assert done.code == 0, done.err
    prepared = next(line for line in done.out.splitlines() if line.startswith("prepared: "))
    assert words in prepared
    assert ("as published for torchvision" in prepared) == file.startswith("resnet50-")


def test_the_card_speaks_of_selection_only_where_weights_were_selected(
    run: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """The card of the last weights said that they are the best of all evaluations, though nothing was selected."""
    cards = {}
    for which in ("latest", "best"):
        (tmp_path / which).mkdir()
        out = tmp_path / which / "x.safetensors"
        assert vernier_here("export", str(run), "--which", which, "--out", str(out)).code == 0
        cards[which] = (tmp_path / which / "model_card.md").read_text()
    assert "best of" not in cards["latest"]
    assert "best of 2 evaluations" in cards["best"]


@pytest.mark.parametrize("form", ["safetensors", "onnx"])
def test_bench_infer_measures_the_network_of_an_exported_file(
    form: str,
    run: Path,
    vernier_here: Vernier,
    tmp_path: Path,
    bench_requests: list[BenchRequest],  # noqa: F811
) -> None:
    """`bench infer FILE` said that there is no such recipe; only runs could be measured."""
    if form == "onnx":
        pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    file = tmp_path / FORMS[form]
    assert vernier_here("export", str(run), "--format", form, "--out", str(file)).code == 0
    vernier_here("bench", "infer", str(file), "--batch", "2")
    (request,) = bench_requests
    config = override(override(config_from_tree(request.config), "machine.eval_batch", 2), "machine.threads", 1)
    load = InferenceLoad(config, Path(request.weights_of or ""))
    try:
        load.step()
        ran = load.what_ran()
    finally:
        load.close()
    assert (ran.network, ran.image_px, ran.classes) == ("resnet8-small, width 8", 32, 10)
    assert ran.data == "synthetic"
    assert ("onnxruntime" in ran.mode) == (form == "onnx")


@pytest.mark.parametrize("form", ["safetensors", "onnx"])
def test_an_exported_file_has_the_settings_of_its_run(form: str, run: Path, tmp_path: Path) -> None:
    """Batch 256, learning rate 0.1 and 90 epochs: the defaults, the same for files of every run."""
    if form == "onnx":
        pytest.importorskip("onnxscript")
    file = v.export(run, tmp_path / FORMS[form], card=False, quiet=True).path
    of_file, of_run = (v.load(each).config.recipe for each in (file, run))
    assert of_file == of_run
    assert (of_file.global_batch, of_file.schedule.epochs, of_file.ema.decay) == (16, 2.0, 0.5)


def test_a_file_is_used_without_the_optimizer_of_its_training(run: Path, tmp_path: Path) -> None:
    """An optimizer of another package is not needed to evaluate."""
    written = export(load_trained(run), "safetensors", tmp_path / "x.safetensors")
    settings = encode(written.about)["settings"]
    settings["recipe"]["optim"] |= {"name": "mypackage-lion", "sharpness": 3}
    about = replace(written.about, settings=settings)
    optim = config_of_file(about, written.path).recipe.optim
    assert (optim.name, optim.lr) == ("mypackage-lion", config_of_file(written.about, run).recipe.optim.lr)


def test_weights_that_were_trained_with_another_padding_say_so(
    tiny: list[str], tmp_path: Path, vernier_here: Vernier
) -> None:
    """Weights from TensorFlow's padding fit a network with PyTorch's, and give other results."""
    short = ("--max-steps", "1", "--train-only")
    assert vernier_here("train", *tiny, *short, "--set", "model.padding=tf").code == 0
    file = tmp_path / "tf.safetensors"
    assert vernier_here("export", str(only_run(tmp_path / "runs")), "--out", str(file)).code == 0
    words = "trained with tf padding, used with torch: for the same results, --set model.padding=tf"
    started = [*tiny, *short, "--weights", str(file), "--resume", "never"]
    other = vernier_here("train", *started)
    assert (other.code, words in other.out + other.err) == (0, True)
    same = vernier_here("train", *started, "--set", "model.padding=tf")
    assert (same.code, "padding, used with" in same.out + same.err) == (0, False)
    own = vernier_here("eval", str(file), "--max-eval-steps", "1")
    assert (own.code, "tf padding" in own.out, "used with" in own.out) == (0, True, False), "its own settings"


def test_the_ending_of_a_file_is_its_format(run: Path, tmp_path: Path, vernier_here: Vernier) -> None:
    """`--out x.onnx` wrote safetensors into x.onnx."""
    pytest.importorskip("onnxscript")
    done = vernier_here("export", str(run), "--out", str(tmp_path / "x.onnx"), "--no-card", "--json")
    assert (done.code, done.json()["format"]) == (0, "onnx"), done.err
    assert kind_of(tmp_path / "x.onnx") == "onnx"


@pytest.mark.parametrize(
    ("out", "more", "said"),
    [
        ("x.onnx", ["--format", "safetensors"], "contradict each other"),
        ("x.pth", ["--format", "onnx"], "--format torchvision"),
        ("x.pdf", [], "no format has the ending .pdf"),
    ],
)
def test_an_ending_that_is_not_the_formats_is_refused(
    out: str, more: list[str], said: str, run: Path, tmp_path: Path, vernier_here: Vernier
) -> None:
    done = vernier_here("export", str(run), "--out", str(tmp_path / out), *more)
    assert done.code == 2
    assert said in done.err
    assert not list(tmp_path.glob("x.*"))
