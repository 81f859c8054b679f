"""Models as objects: load, predict, evaluate, export; networks as modules."""

import hashlib
import io
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import vernier as v
from tests.data.http_server import Server
from tests.tiny_training import run_training, tiny_detector_config
from vernier.config import override
from vernier.data import downloads as pretrained
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.models import build, weights


@pytest.fixture(scope="module")
def model(tiny_run: v.Run) -> v.Model:
    return v.load(tiny_run)


def test_a_model_says_what_it_is(model: v.Model, tiny_run: v.Run) -> None:
    assert len(model.classes) == 10
    assert "short side 32, centre 32" in model.prepared
    assert isinstance(model.torch, nn.Module)
    assert not model.torch.training
    assert model.device == torch.device("cpu")
    assert model.config == tiny_run.config
    assert repr(model).startswith("Model(resnet8-small, 10 classes, from ")


def test_the_same_image_in_every_form_gives_the_same_prediction(model: v.Model, photo: Path) -> None:
    picture = Image.open(photo)
    forms: list[Any] = [photo, str(photo), picture, np.asarray(picture)]
    predictions = [model.predict(form) for form in forms]
    assert len({(p.label, p.score) for p in predictions}) == 1
    first = predictions[0]
    assert (first.image, len(first), first[0].class_name) == (str(photo), 5, first.label)
    assert [p.score for p in first] == sorted((p.score for p in first), reverse=True)
    assert repr(first).startswith(f"Prediction({photo}: {first.label} ")
    assert [p.label for p in model.predict(forms)] == [first.label] * 4


def test_grey_images_become_colour_as_those_of_files_do(model: v.Model, photo: Path, tmp_path: Path) -> None:
    grey = Image.open(photo).convert("L")
    grey.save(tmp_path / "grey.png")
    forms: list[Any] = [tmp_path / "grey.png", grey, np.asarray(grey), np.asarray(grey)[..., None]]
    assert len({model.predict(form).score for form in forms}) == 1


def test_transform_and_network_together_are_the_prediction(model: v.Model, photo: Path) -> None:
    image = model.transform(photo)
    assert (image.shape, image.dtype) == ((3, 32, 32), torch.float32)
    with torch.no_grad():
        scores = model.torch(image[None]).softmax(1)[0]
    best = model.predict(photo)
    assert (model.classes[int(scores.argmax())], float(scores.max())) == (best.label, best.score)


def test_images_of_a_folder_and_bad_ones_among_them(model: v.Model, shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    predictions = model.predict([shapes / "val" / "arrow", tmp_path / "bad.jpg"])
    assert len(predictions) == 6
    assert [bool(p.error) for p in predictions] == [False] * 5 + [True]
    assert (predictions[-1].label, predictions[-1].score, len(predictions[-1])) == (None, None, 0)
    assert "cannot be read" in repr(predictions[-1])
    for use in (model.predict, model.transform):
        with pytest.raises(v.RunFailed, match=r"bad\.jpg cannot be read: "):
            use(tmp_path / "bad.jpg")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("/no/such.jpg", r"/no/such\.jpg does not exist"),
        (os.path.dirname(__file__), r"has no images \("),  # noqa: PTH120
        (3, "An image is a path, a Pillow image or an array of uint8, not 3"),
        ([], "The list is empty"),
        (np.zeros((4, 4, 3)), r"not ndarray of shape \(4, 4, 3\) and float64"),
        (np.zeros((4, 4, 7), np.uint8), r"An array is \[height, width, 3\] in RGB"),
        (torch.zeros(3, 4, 4), r"not Tensor of shape \(3, 4, 4\)"),
    ],
)
def test_what_is_no_image_is_explained(model: v.Model, image: Any, message: str) -> None:
    with pytest.raises(v.ConfigError, match=message):
        model.predict(image)


def test_evaluation_is_that_of_the_run(model: v.Model, tiny_run: v.Run, shapes: Path, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    result = model.evaluate(quiet=True)
    assert result.figures == tiny_run.result.figures
    assert torch.equal(torch.get_rng_state(), state)
    again = v.evaluate(tiny_run, str(shapes), split="val", settings={"eval.flip_tta": True}, quiet=True)
    assert (again.record.flip_tta, again.record.samples, again.record.split) == (True, 50, "val")
    assert model.evaluate(max_eval_steps=1, quiet=True).record.samples == 16


def test_another_engine_gives_the_same_predictions_and_result(
    model: v.Model, tiny_run: v.Run, shapes: Path, photo: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    other = v.load(tiny_run, engine="onnxruntime")
    assert other.predict(photo).label == model.predict(photo).label
    assert other.predict(photo).score == pytest.approx(model.predict(photo).score, rel=1e-3)
    assert any(note.startswith("engine: onnxruntime ") for note in other.notes)
    result = v.evaluate(tiny_run, shapes, engine="onnxruntime", quiet=True)
    assert result.top1 == model.evaluate(shapes, quiet=True).top1
    assert result.record.engine is not None
    with pytest.raises(v.ConfigError, match="give engine to load"):
        v.evaluate(model, engine="auto")
    with pytest.raises(v.ConfigError, match='Use engine="onnxruntime" or engine="auto"'):
        v.load(tiny_run, int8=True).predict(photo)


def test_what_cannot_be_evaluated_is_explained(model: v.Model) -> None:
    with pytest.raises(v.ConfigError, match="The data path /nope does not exist"):
        model.evaluate("/nope")
    with pytest.raises(v.ConfigError, match="has no test split"):
        model.evaluate(split="test")
    with pytest.raises(v.ConfigError, match="cannot be changed"):
        model.evaluate(settings={"model.width": 16})


def test_settings_of_training_are_refused(model: v.Model, tiny_run: v.Run) -> None:
    for name in ("machine.convolution", "machine.backend"):
        for call in (model.evaluate, partial(v.load, tiny_run)):
            with pytest.raises(v.ConfigError) as refused:
                call(settings={name: "x"})
            assert refused.value.given == {name: "x"}
            assert f'settings={{"{name}": "x"}}' in str(refused.value)


def test_a_checkpoint_of_a_run_is_chosen(tiny_run: v.Run) -> None:
    assert v.load(tiny_run, which="10").torch is not None
    for which in ("bst", 7):
        with pytest.raises(v.ConfigError, match=f"{which}.*10, 12"):
            v.load(tiny_run, which=which)
    with pytest.raises(v.ConfigError) as refused:
        v.load("/no/such")
    assert refused.value.given == {"source": "/no/such"}


def test_an_exported_file_is_the_model_again(model: v.Model, tiny_run: v.Run, photo: Path, tmp_path: Path) -> None:
    export = v.export(tiny_run, tmp_path / "model.safetensors")
    assert export.card is not None
    assert export.card.is_file()
    assert v.predict(export, photo).score == model.predict(photo).score
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    network = v.export(model, tmp_path / "model.onnx", card=False)
    assert network.check is not None
    assert network.check.same_top1 == network.check.images
    from_network = v.load(network)
    assert from_network.transform(photo).dtype == torch.uint8
    assert from_network.predict(photo).label == model.predict(photo).label
    with pytest.raises(v.ConfigError, match="exists"):
        v.export(tiny_run, tmp_path / "model.safetensors")
    with pytest.raises(v.ConfigError, match="give which to load"):
        v.export(model, tmp_path / "x.pth", which="best")
    with pytest.raises(v.ConfigError, match='writes weights alone, and data="shapes" is for'):
        v.export(tiny_run, tmp_path / "y.safetensors", data="shapes")


def test_weights_of_others_need_a_network_and_take_names(photo: Path, tmp_path: Path) -> None:
    torch.save(build("resnet8-small", num_classes=3).state_dict(), tmp_path / "w.pth")
    with pytest.raises(
        v.ConfigError, match=r"Give model=NAME \(vernier models lists them\): they look like resnet8-small"
    ):
        v.load(tmp_path / "w.pth")
    with pytest.raises(v.ConfigError, match=r"Unknown model 'resnet8-smal'\. Did you mean resnet8-small"):
        v.load(tmp_path / "w.pth", model="resnet8-smal")
    named = v.load(tmp_path / "w.pth", model="resnet8-small", classes=["a", "b", "c"])
    assert named.predict(photo).label in ("a", "b", "c")
    (tmp_path / "names.txt").write_text("x\ny\nz\n")
    assert v.load(tmp_path / "w.pth", model="resnet8-small", classes=tmp_path / "names.txt").classes == ("x", "y", "z")
    with pytest.raises(v.ConfigError, match="have 3 classes, and 2 names were given"):
        v.load(tmp_path / "w.pth", model="resnet8-small", classes=["a", "b"])
    with pytest.raises(v.ConfigError, match="Which images"):
        named.evaluate()


def test_a_detector_finds_objects_with_boxes(tmp_path: Path) -> None:
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=8, val=4, size_px=96, seed=1))
    run = run_training(override(tiny_detector_config(boxes), "limits.max_steps", 1), tmp_path / "runs").run
    model = v.load(run.path)
    photo = sorted((boxes / "val").rglob("*.jpg"))[0]
    every = model.predict(photo, min_score=0.0)
    assert len(every) > len(model.predict(photo, min_score=0.99))
    assert every[0].box is not None
    assert model.transform(photo).shape == (3, 96, 96)
    assert "AP50" in dir(model.evaluate(quiet=True))


# ------------------------------------------------------------------------------------------------------------ networks


def test_a_network_by_name_with_as_many_classes_as_needed() -> None:
    network = v.create_model("resnet8-small", num_classes=7, in_channels=1)
    assert network.training
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 7)
    assert v.create_model("resnet8-small")(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    narrow = v.create_model("resnet8-small", num_classes=2, settings={"model.width": 8})
    assert narrow(torch.zeros(1, 3, 32, 32)).shape == (1, 2)
    torch.manual_seed(3)
    first = v.create_model("resnet8-small").state_dict()["conv1.weight"]
    torch.manual_seed(3)
    assert torch.equal(v.create_model("resnet8-small").state_dict()["conv1.weight"], first)


def test_weights_of_another_number_of_classes_get_a_new_last_layer(tmp_path: Path) -> None:
    published = build("resnet8-small", num_classes=100)
    weights.save_torch(published.state_dict(), tmp_path / "w.pth", {})
    same = v.create_model("resnet8-small", weights=tmp_path / "w.pth")
    assert torch.equal(same.state_dict()["fc.weight"], published.state_dict()["fc.weight"])
    new = v.create_model("resnet8-small", weights=str(tmp_path / "w.pth"), num_classes=3).state_dict()
    assert new["fc.weight"].shape[0] == 3
    assert torch.equal(new["layer1.0.conv1.weight"], published.state_dict()["layer1.0.conv1.weight"])


def test_the_network_of_an_exported_file_is_built_as_the_file_says(tiny_run: v.Run, tmp_path: Path) -> None:
    export = v.export(tiny_run, tmp_path / "m.safetensors", card=False)
    network = v.create_model("resnet8-small", weights=export)
    image = torch.zeros(1, 3, 32, 32)
    assert torch.allclose(network.eval()(image), v.load(export).torch(image), atol=1e-6)
    assert v.create_model("resnet8-small", weights=export, num_classes=4)(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    with pytest.raises(v.ConfigError, match="resnet8-small, not resnet50"):
        v.create_model("resnet50", weights=export)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet5", {}, r"Unknown model 'resnet5'\. Did you mean resnet50"),
        ("resnet8-small", {"num_classes": 0}, "num_classes=0 is out of range: it must be 1 or more"),
        ("resnet8-small", {"num_classes": "ten"}, "num_classes takes a whole number, not 'ten'"),
        ("resnet8-small", {"weights": "/no/such.pth"}, "does not exist"),
        ("resnet8-small", {"settings": {"model.widht": 4}}, r"Did you mean model\.width"),
    ],
)
def test_what_is_no_network_is_explained(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(v.ConfigError, match=message) as caught:
        v.create_model(name, **options)
    assert "--" not in str(caught.value)


def test_weights_that_do_not_fit_are_explained_in_the_words_of_python(tiny_run: v.Run, tmp_path: Path) -> None:
    wide = build("resnet8-small", num_classes=3, width=8).state_dict()
    torch.save(wide, tmp_path / "w.pth")
    with pytest.raises(v.ConfigError, match=r'settings=\{"model.width": 8\}') as refused:
        v.create_model("resnet8-small", weights=tmp_path / "w.pth")
    assert refused.value.works == [("model.width", 8)]
    with pytest.raises(v.ConfigError) as refused:
        v.create_model("resnet8-small", weights=tiny_run.path)
    assert refused.value.given == {"weights": str(tiny_run.path)}
    with pytest.raises(v.ConfigError) as refused:
        v.create_model("resnet8-small", weights=tmp_path / "w.pth", in_channels=1, settings={"model.width": 8})
    assert refused.value.given == {"in_channels": 1}


def test_published_weights_are_fetched_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a publisher on loopback, whose ResNet-18 has weights of its own: the name of the file has their hash."""
    network, content = build("resnet18", num_classes=4), io.BytesIO()
    torch.save(network.state_dict(), content)
    file = f"resnet18-{hashlib.sha256(content.getvalue()).hexdigest()[:8]}.pth"
    monkeypatch.setitem(pretrained.TORCHVISION, "resnet18", file)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    with closing(Server()) as server:
        server.files[file] = content.getvalue()
        monkeypatch.setenv(pretrained.MIRROR, server.url)
        created = v.create_model("resnet18", weights="torchvision:resnet18").state_dict()
        assert torch.equal(created["fc.weight"], network.state_dict()["fc.weight"])
        assert v.load("torchvision:resnet18", model="resnet18", classes=list("abcd")).classes == ("a", "b", "c", "d")
        assert server.hits == 1
    with pytest.raises(v.ConfigError, match=r"There are no weights torchvision:resnet5"):
        v.create_model("resnet50", weights="torchvision:resnet5")
