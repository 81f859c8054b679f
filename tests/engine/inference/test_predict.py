"""Prediction on single images."""

from pathlib import Path

from tests.engine.inference.loading import load_trained
from tests.tiny_training import run_training, tiny_config
from vernier.config import Schedule
from vernier.engine.inference.predict import predict


def test_images_are_predicted_in_order_and_a_bad_one_has_a_reason(shapes: Path, tmp_path: Path) -> None:
    trained = load_trained(run_training(tiny_config(shapes, schedule=Schedule(epochs=0.1)), tmp_path / "runs").run.path)
    good = sorted((shapes / "val").rglob("*.jpg"))[:2]
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    answers = list(predict(trained, [good[0], bad, good[1]]))
    assert [(prediction.image, done, total) for prediction, done, total in answers] == [
        (str(good[0]), 1, 3),
        (str(bad), 2, 3),
        (str(good[1]), 3, 3),
    ]
    first, middle, last = (prediction for prediction, _, _ in answers)
    assert middle.error
    assert middle.predictions == ()
    for prediction in (first, last):
        assert prediction.error is None
        scores = [scored.score for scored in prediction.predictions]
        assert scores == sorted(scores, reverse=True)
        assert {scored.class_name for scored in prediction.predictions} <= set(trained.classes)
