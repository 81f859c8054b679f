"""Evaluation of a trained model."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.engine.inference.loading import load_trained
from tests.tiny_training import run_training, tiny_config
from vernier.config import Ema, Limits, Schedule, override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices.base import StepTimes
from vernier.devices.cpu import Cpu
from vernier.engine.execution import evaluating
from vernier.engine.inference.evaluate import _BatchTimes, _match_classes, evaluate_trained
from vernier.errors import ConfigError, RunFailed
from vernier.models import build
from vernier.records.events import EvalEvent
from vernier.references import references


def test_evaluating_the_run_gives_the_result_it_reported(shapes: Path, tmp_path: Path) -> None:
    outcome = run_training(tiny_config(shapes, ema=Ema(decay=0.5)), tmp_path)
    reported = outcome.summary.result
    assert reported is not None
    for path in (outcome.run.path, outcome.run.checkpoints.committed()[-1].path):
        report = evaluate_trained(load_trained(path))
        assert (report.figures, report.samples, report.averaged) == (reported.figures, reported.samples, True)
        assert report.images_per_s_total == pytest.approx(report.samples / report.seconds)
    raw = evaluate_trained(load_trained(outcome.run.path, averaged=False))
    assert raw.figures["loss"] != reported.figures["loss"]


def test_a_traced_run_learns_and_evaluates_like_an_eager_one(shapes: Path, tmp_path: Path) -> None:
    """Averaged weights included, which a traced network borrows for an evaluation."""
    config = tiny_config(shapes, ema=Ema(decay=0.9), schedule=Schedule(epochs=1.0))
    traced = replace(config, machine=replace(config.machine, mode="trace"))
    eager, other = (run_training(c, tmp_path / c.machine.mode).summary for c in (config, traced))
    assert eager.result is not None
    assert other.result is not None
    assert other.result.figures["loss"] == pytest.approx(eager.result.figures["loss"], rel=1e-4)
    assert other.result.averaged
    assert [s.compilation.graphs for s in (eager, other) if s.compilation] == [0, 2]


def test_other_data_part_of_it_and_predictions_on_disk(shapes: Path, tmp_path: Path) -> None:
    trained = load_trained(run_training(tiny_config(shapes, schedule=Schedule(epochs=0.1)), tmp_path / "runs").run.path)
    other = make_shapes(tmp_path / "other", ShapesSpec(train=20, val=30, size_px=32, seed=9))
    elsewhere = replace(trained, config=override(trained.config, "data.source", str(other)))
    report = evaluate_trained(elsewhere, max_eval_steps=1, out=tmp_path / "out")
    assert (report.samples, report.exact, report.data) == (16, False, str(other))
    assert report.written
    assert all(json.loads(Path(path).read_text()) is not None for path in report.written)


def test_frozen_modules_stay_frozen_after_an_evaluation() -> None:
    model = build("resnet8-small", num_classes=10, width=8)
    model.train()
    model.bn1.eval()  # type: ignore[union-attr, operator]
    with evaluating(model, Cpu()):
        assert not any(module.training for module in model.modules())
    assert model.training
    assert not model.bn1.training  # type: ignore[union-attr]


@pytest.mark.parametrize("batch", [16, 7])
def test_no_image_is_evaluated_twice(shapes: Path, tmp_path: Path, batch: int) -> None:
    """Elsewhere the validation set was padded with copies until it divided."""
    config = tiny_config(shapes)
    config = replace(config, limits=Limits(max_steps=1), machine=replace(config.machine, eval_batch=batch))
    result = run_training(config, tmp_path).summary.result
    assert result is not None
    assert result.samples == 50


def test_an_image_that_cannot_be_read_is_not_left_out_of_the_result(shapes: Path, tmp_path: Path) -> None:
    """Elsewhere images that failed to decode were skipped, and the metric did not say so."""
    data = tmp_path / "data"
    shutil.copytree(shapes, data)
    damaged = sorted((data / "val").rglob("*.jpg"))[0]
    damaged.write_bytes(b"no picture")
    config = replace(override(tiny_config(data), "data.max_bad_images", "5"), limits=Limits(max_steps=2))
    summary = run_training(config, tmp_path / "runs").summary
    assert summary.result is not None
    assert summary.result.samples == 50
    assert [Path(bad.path).name for bad in summary.bad_images] == [damaged.name]
    with pytest.raises(RunFailed, match="limit is 0"):
        run_training(override(config, "data.max_bad_images", "0"), tmp_path / "strict")


_COUNT_ROUND_TRIPS = """
import json, sys
from pathlib import Path
import rgpu
from tests.tiny_training import tiny_config, tiny_detector_config
from vernier.config import override
from vernier.engine.observe import Observers
from vernier.engine.training.setup import prepare

make_config = tiny_config if sys.argv[1] == "classify" else tiny_detector_config
config = make_config(Path(sys.argv[2]))
results = []
for device, batch in (("cpu", 10), ("rgpu", 10), ("rgpu", 5)):
    settings = {"machine.device": device, "machine.eval_batch": batch, "machine.channels_last": False}
    for name, value in settings.items():
        config = override(config, name, value)
    job = prepare(config)
    before = rgpu.session.get().stats["waits"]
    score = job.evaluator.score(job.network, None, Observers(), lambda: None)
    round_trips = rgpu.session.get().stats["waits"] - before
    result = job.evaluator.result(score, averaged=False)
    figures = {name: figure for name, figure in result.figures.items() if figure is not None}
    results.append([round_trips, figures, [result.samples, result.detections]])
    job.close()
print(json.dumps(results))
"""


@pytest.mark.slow
def test_an_evaluation_of_a_classifier_reads_the_device_once(shapes: Path, on_rgpu: Callable[..., Any]) -> None:
    (_, on_cpu, counts), *by_batch = on_rgpu(_COUNT_ROUND_TRIPS, "classify", shapes)
    assert counts[0] == 50
    for round_trips, figures, device_counts in by_batch:
        assert round_trips == 1
        assert figures == pytest.approx(on_cpu, rel=1e-6)
        assert device_counts == counts


@pytest.mark.slow
def test_a_detector_is_read_twice_per_batch(tmp_path: Path, on_rgpu: Callable[..., Any]) -> None:
    """The number of candidates, which is not known before, and the candidates."""
    boxes = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=8, val=20, size_px=96, seed=5))
    (_, on_cpu, counts), *by_batch = on_rgpu(_COUNT_ROUND_TRIPS, "detect", boxes)
    assert counts == [20, 20 * 200]
    for batches, (round_trips, figures, device_counts) in zip((2, 4), by_batch, strict=True):
        assert round_trips == 2 * batches
        assert figures == pytest.approx(on_cpu, abs=1e-3)
        assert device_counts == counts


class _ToldByWindows(Cpu):
    """A device that queues and cannot say when it has done what."""

    step_times: ClassVar[StepTimes] = "windows"


def test_a_training_records_the_batches_of_its_evaluations(shapes: Path, tmp_path: Path) -> None:
    run = run_training(tiny_config(shapes), tmp_path).run
    events = [e for e in run.history() if isinstance(e, EvalEvent)]
    assert events
    for event in events:
        assert event.batch_s is not None
        assert event.wait_s is not None
        assert len(event.batch_s) == len(event.wait_s) == -(-event.samples // 16)
        assert all(wait_s <= seconds for seconds, wait_s in zip(event.batch_s, event.wait_s, strict=True))
        assert sum(event.batch_s) <= event.seconds


@pytest.mark.parametrize(("device", "known"), [(Cpu(), True), (_ToldByWindows(), False)])
def test_what_a_device_cannot_tell_is_not_recorded(device: Cpu, known: bool) -> None:
    times = _BatchTimes(device)
    times.add(0.0)
    assert (times.seconds() is not None) == known
    assert _BatchTimes(device).seconds() is None


ANIMALS = ("ape", "bee", "cat", "dog")
NUMBERS = tuple(map(str, range(1000)))


def test_the_same_names_need_no_note() -> None:
    match = _match_classes(ANIMALS, ANIMALS)
    assert (match.how, match.outputs, match.notes) == ("name", (0, 1, 2, 3), ())


def test_another_order_is_mapped_and_noted() -> None:
    match = _match_classes(ANIMALS, ("cat", "ape", "dog", "bee"))
    assert (match.how, match.outputs) == ("order", (2, 0, 3, 1))
    assert "in another order (cat, ape, dog, bee instead of ape, bee, cat, dog)" in match.notes[0]


def test_some_of_the_classes_are_mapped_and_the_note_says_over_what_the_metric_is() -> None:
    match = _match_classes(ANIMALS, ("dog", "bee"))
    assert (match.how, match.outputs) == ("subset", (3, 1))
    assert match.notes == ("2 of the model's 4 classes are in this data; top-1 is over all 4 outputs",)
    assert "AP is over those" in _match_classes(ANIMALS, ("dog",), metric="AP").notes[0]


def test_other_names_are_refused_side_by_side() -> None:
    with pytest.raises(ConfigError, match=r"1: bee \| Biene, 2: cat \| Katze\..*classes_by_number=true"):
        _match_classes(ANIMALS, ("ape", "Biene", "Katze", "dog"))
    with pytest.raises(ConfigError, match=r"has 5, of which the model does not know 1: emu\."):
        _match_classes(ANIMALS, (*ANIMALS, "emu"))
    with pytest.raises(ConfigError, match="does not know 1: Hund"):
        _match_classes(ANIMALS, ("ape", "Hund"))


def test_names_that_occur_twice_cannot_be_matched() -> None:
    with pytest.raises(ConfigError, match="other names"):
        _match_classes(("a", "b", "a"), ("a", "a", "b"))
    assert _match_classes(("a", "b", "a"), ("a", "b", "a")).how == "name"


def test_numbers_are_taken_on_request_when_there_are_as_many() -> None:
    match = _match_classes(ANIMALS, ("w", "x", "y", "z"), by_number=True)
    assert (match.how, match.outputs) == ("number", (0, 1, 2, 3))
    assert references(match.notes[0])[0].name == "classes_by_number"
    with pytest.raises(ConfigError, match="has 4 classes, the data has 2"):
        _match_classes(ANIMALS, ("ape", "bee"), by_number=True)


def test_weights_without_names_are_matched_by_number() -> None:
    match = _match_classes(NUMBERS, tuple(f"n{i:08d}" for i in range(1000)), named=False)
    assert match.how == "number"
    assert "classes taken by number (the weights have no class names)" in match.notes[0]
    with pytest.raises(ConfigError, match="no class names to match by"):
        _match_classes(NUMBERS, ("tench", "goldfish"), named=False)


def test_folders_that_are_numbers_are_a_subset_of_weights_without_names() -> None:
    match = _match_classes(NUMBERS, ("3", "42", "999"), named=False)
    assert (match.how, match.outputs) == ("subset", (3, 42, 999))
    assert "999 is output 999, counted from 0" in match.notes[0]
    with pytest.raises(ConfigError, match="1,000 classes, the data has 2"):
        _match_classes(NUMBERS, ("3", "1000"), named=False)
    assert _match_classes(("0", "1"), ("1", "2"), named=False).how == "number"
