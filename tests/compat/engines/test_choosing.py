"""Engines in use: checked against PyTorch on images of the data, refused where they differ, measured and chosen."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.compat.engines.small_model import small_model
from vernier.compat.engines import choosing
from vernier.compat.engines.choosing import measure_rates, use_engine
from vernier.compat.engines.runners import OnnxRuntime
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices.cpu import Cpu, instruction_sets
from vernier.engine.inference.evaluate import evaluate_trained
from vernier.engine.inference.model_file import FileNetwork
from vernier.engine.inference.predict import with_engine_for
from vernier.errors import ConfigError, RunFailed
from vernier.tasks import task_of


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(autouse=True)
def short(own_cache: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same small network in all tests: it is exported once."""
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    monkeypatch.setenv("VERNIER_HOME", str(exported))
    monkeypatch.setattr(choosing, "SECONDS", 0.0)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_gives_the_result_of_pytorch_and_says_how_it_was_checked(engine: str, shapes: Path) -> None:
    pytest.importorskip(engine, reason=f"needs vernier[{engine}]")
    expected = evaluate_trained(small_model(shapes))
    report = evaluate_trained(small_model(shapes, engine=engine))
    assert report.figures["top1"] == expected.figures["top1"]
    assert report.figures["loss"] == pytest.approx(expected.figures["loss"], rel=1e-4)
    assert report.engine is not None
    assert report.engine.check is not None
    assert (report.engine.check.images, report.engine.check.same_top1) == (32, 32)
    assert report.ran is not None
    assert f"fp32 {engine} " in report.ran.line()
    assert any("checked in fp32 against PyTorch on 32 of these images" in note for note in report.notes)


def test_auto_takes_the_fastest_and_shows_the_rates_side_by_side(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_installed_engines", lambda: ["onnxruntime"])
    trained = small_model(shapes, engine="auto")
    source = task_of(trained.config.recipe).open("val")
    monkeypatch.setattr(choosing, "measure_rates", lambda networks, images: dict(zip(networks, (10, 30), strict=True)))
    chosen = use_engine(trained, source, batch=4)
    assert isinstance(chosen.model, FileNetwork)
    assert chosen.notes[0].startswith("engine: onnxruntime ")
    assert chosen.notes[0].endswith("img/s at batch 4: torch 10.0, onnxruntime 30.0")
    monkeypatch.setattr(choosing, "measure_rates", lambda networks, images: dict(zip(networks, (30, 10), strict=True)))
    own = use_engine(trained, source, batch=4)
    assert own.model is trained.model
    assert own.notes[0].startswith(f"engine: torch {torch.__version__}: the fastest")


def test_auto_without_another_engine_is_pytorch_and_names_the_extras(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_installed_engines", list)
    monkeypatch.setattr(choosing, "onnx_file", lambda *_: Path("none.onnx"))
    trained = small_model(shapes, engine="auto")
    own = use_engine(trained, task_of(trained.config.recipe).open("val"), batch=2)
    assert "no other engine is installed: pip install 'vernier[onnxruntime,openvino]'" in own.notes


def test_an_engine_that_computes_something_else_is_refused_and_auto_leaves_it_out(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(engine: OnnxRuntime, path: Path) -> tuple[object, str]:
        return lambda images: (torch.ones(len(images), 10),), f"{engine.name} 0 on CPU"

    monkeypatch.setattr(OnnxRuntime, "open", wrong)
    monkeypatch.setattr(choosing, "onnx_file", lambda *_: Path("none.onnx"))
    trained = small_model(shapes, engine="onnxruntime")
    source = task_of(trained.config.recipe).open("val")
    with pytest.raises(
        RunFailed, match=r"does not compute what PyTorch does.*of 32 images\. Use machine\.engine=torch\."
    ):
        use_engine(trained, source, batch=2)
    own = use_engine(small_model(shapes, engine="auto"), source, batch=2)
    assert own.model is not None
    assert any("onnxruntime 0 on CPU does not compute what PyTorch does" in note for note in own.notes)


def test_a_model_on_another_device_is_refused(shapes: Path) -> None:
    class Elsewhere(Cpu):
        name = "cuda"

    trained = replace(small_model(shapes, engine="onnxruntime"), device=Elsewhere())
    with pytest.raises(ConfigError, match=r"this model is on cuda\. Use machine\.device=cpu"):
        use_engine(trained, task_of(trained.config.recipe).open("val"), batch=2)


def test_int8_is_close_to_fp32_and_its_loss_stands_beside_its_speed(shapes: Path) -> None:
    report = evaluate_trained(small_model(shapes, engine="onnxruntime", int8=True))
    assert report.engine is not None
    loss = report.engine.int8
    assert loss is not None
    assert (loss.calibration_images, loss.images, loss.metric) == (17, 33, "top1")
    assert loss.same_top1 is not None
    assert loss.same_top1 > 0.7
    assert loss.fp32_images_per_s > 0 < loss.int8_images_per_s
    assert report.ran is not None
    assert "int8 onnxruntime " in report.ran.line()
    (line,) = (note for note in report.notes if note.startswith("INT8 against fp32: top-1 "))
    assert "points), the same class for" in line
    assert "on 33 images; calibrated on 17 others" in line


BF16 = bool(instruction_sets() & {"avx512_bf16", "amx_bf16"})


@pytest.mark.skipif(not BF16, reason="this processor has no bf16 instructions")
def test_bf16_of_openvino_is_close_to_fp32_and_is_shown_with_its_loss(shapes: Path) -> None:
    report = evaluate_trained(small_model(shapes, engine="openvino", precision="bf16"))
    assert report.engine is not None
    loss = report.engine.bf16
    assert loss is not None
    assert report.engine.int8 is None
    assert (loss.calibration_images, loss.images, loss.metric) == (0, 50, "top1")
    assert loss.same_top1 is not None
    assert loss.same_top1 > 0.9
    assert report.engine.engine.endswith(", bf16")
    (line,) = (note for note in report.notes if note.startswith("bf16 against fp32: top-1 "))
    assert line.endswith("on 50 images")


@pytest.mark.skipif(not BF16, reason="this processor has no bf16 instructions")
def test_auto_takes_bf16_only_if_it_may(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fastest_last(networks: dict[str, object], images: object) -> dict[str, float]:
        return {name: float(number) for number, name in enumerate(networks, start=1)}

    monkeypatch.setattr(choosing, "measure_rates", fastest_last)
    for allowed in (False, True):
        trained = small_model(shapes, engine="auto", allow_lower_precision=allowed)
        report = use_engine(trained, task_of(trained.config.recipe).open("val"), batch=4).engine
        assert report is not None
        assert ("openvino bf16" in (report.rates or {})) == allowed
        assert (report.bf16 is not None) == allowed
        assert report.engine.endswith("bf16") == allowed


def test_int8_of_single_images_is_refused_where_they_are_too_few(shapes: Path) -> None:
    images = sorted((shapes / "val").rglob("*.jpg"))[:5]
    with pytest.raises(ConfigError, match="5 are too few, give at least 30"):
        with_engine_for(small_model(shapes, engine="onnxruntime", int8=True), images)


def test_a_detector_is_checked_by_its_best_object_per_image(tmp_path: Path) -> None:
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=8, val=6, size_px=96, seed=5))
    trained = small_model(boxes, detector=True, engine="onnxruntime")
    used = use_engine(trained, task_of(trained.config.recipe).open("val"), batch=2)
    assert used.engine is not None
    assert used.engine.same_boxes == 6
    assert "the same best object for 6 of 6" in " ".join(used.notes)


def test_rates_are_of_calls_that_take_turns() -> None:
    calls: list[str] = []
    networks = {name: lambda images, name=name: calls.append(name) for name in ("a", "b")}
    rates = measure_rates(networks, torch.zeros(4, 1))
    assert calls == ["a", "b"] * (1 + choosing.ROUNDS)
    assert set(rates) == {"a", "b"}
