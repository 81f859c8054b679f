"""The end of a fine-tuning: the best weights, evaluated on test images and exported."""

import shutil
from dataclasses import replace
from pathlib import Path

from tests.tiny_training import run_training, tiny_config
from vernier.engine.inference.trained import ModelChoice, load_model
from vernier.lab.finetuning.finishing import finish


def test_the_best_weights_are_tested_and_exported_once(shapes: Path, tmp_path: Path) -> None:
    shutil.copytree(shapes / "train", tmp_path / "data" / "train")
    shutil.copytree(shapes / "val", tmp_path / "data" / "test")
    config = tiny_config(tmp_path / "data")
    data = replace(config.recipe.data, hold_out=True, val_share=0.2)
    outcome = run_training(replace(config, recipe=replace(config.recipe, data=data)), tmp_path / "runs")
    file = tmp_path / "model.safetensors"
    done = finish(outcome.run.path, file, has_test=True)
    assert done.test is not None
    assert (done.test.samples, done.test.split) == (50, "test")
    assert done.held_out is not None
    assert done.held_out.samples == 30, "three of the sixteen images of every class"
    assert outcome.summary.best is not None
    assert done.step == outcome.summary.best.step
    assert load_model(ModelChoice(path=file)).step == done.step
    written = file.stat().st_mtime_ns
    assert finish(outcome.run.path, file, has_test=False).test is None
    assert file.stat().st_mtime_ns == written, "nothing is overwritten"
