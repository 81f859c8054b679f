"""`vernier.finetune`: the fine-tuning of the command, from Python."""

from pathlib import Path
from typing import Any

import pytest

import vernier as v
from vernier.api.session import Session
from vernier.lab.api.finetuning import explain_finetuning
from vernier.lab.requests.finetuning import Finetune
from vernier.requests.wording import Words

SMALL: dict[str, Any] = {
    "image_px": 32,
    "epochs": 2,
    "global_batch": 16,
    "tensorboard": False,
    "settings": {"model.width": 8, "machine.threads": 1},
}


@pytest.fixture(scope="module")
def start(tiny_run: v.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights to start from, as another training left them."""
    return v.export(tiny_run, tmp_path_factory.mktemp("start") / "start.safetensors").path


def test_a_fine_tuning_returns_its_run_with_model_and_results(
    shapes: Path, start: Path, photo: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], vernier_here: Any
) -> None:
    run = v.finetune(shapes, weights=start, out=tmp_path / "runs", **SMALL)
    shown = capfd.readouterr().err
    assert "found          160 images of 10 classes" in shown
    assert "timed just now" in shown
    assert run.status == "finished"
    assert run.held_out.samples == 50
    assert v.load(run.model_file).predict(photo).label in v.load(run).classes
    assert (run.path / "report.html").is_file()
    with pytest.raises(v.ConfigError, match="the data has no test split"):
        _ = run.test
    flags = ["--image-px", "32", "--epochs", "2", "--global-batch", "16", "--no-tensorboard", "--json"]
    settings = ["--set", "model.width=8", "--set", "machine.threads=1"]
    given = ["--weights", str(start), "--out", str(tmp_path / "command"), *flags, *settings]
    done = vernier_here("finetune", str(shapes), *given)
    assert done.code == 0, done.err
    assert done.json()["held_out"]["loss"] == run.held_out.loss, "the same settings, the same weights"


def test_a_training_that_ended_without_its_model_is_finished_by_the_same_call(
    shapes: Path, start: Path, tmp_path: Path
) -> None:
    first = v.finetune(shapes, weights=start, out=tmp_path, quiet=True, **SMALL)
    first.model_file.unlink()
    (first.path / "finetuning.json").unlink()
    with pytest.raises(v.ConfigError, match="has not ended"):
        _ = first.held_out
    again = v.finetune(shapes, weights=start, out=tmp_path, quiet=True, **SMALL)
    assert again == first
    assert again.model_file.is_file()
    (first.path / "report.html").unlink()  # as a kill between the export and the page leaves it
    assert v.finetune(shapes, weights=start, out=tmp_path, quiet=True, **SMALL) == first
    assert (first.path / "report.html").is_file()


def test_minutes_still_work_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="time='3m'"), pytest.raises(v.ConfigError, match="does not exist"):
        v.finetune(tmp_path / "nowhere", minutes=3)


def test_explain_returns_the_plan_and_leaves_nothing(shapes: Path, start: Path, tmp_path: Path) -> None:
    request = Finetune(folder=str(shapes), weights=str(start), out=str(tmp_path / "runs"), image_px=32, time="1m")
    explained = explain_finetuning(request, Session(Words(Finetune, request), quiet=True))
    assert explained.plan.config.recipe.data.image_px == 32
    assert explained.warnings == ()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("/no/such/folder", {}, "/no/such/folder"),
        (3, {}, "folder .*3"),
        ("{shapes}", {"tme": "3m"}, "tme.*time"),
        ("{shapes}", {"time": "0s"}, 'time="0s"'),
        ("{shapes}", {"time": "ten"}, 'time="ten"'),
        ("{shapes}", {"task": "masks"}, 'task="masks"'),
        ("{shapes}", {"image_px": 4}, "image_px"),
        ("{shapes}", {"weights": "missing.pth"}, r"missing\.pth"),
        ("{shapes}", {"settings": {"optim.lrr": 1}}, r"optim\.lrr"),
    ],
)
def test_what_cannot_be_trained_is_explained_in_the_words_of_python(
    shapes: Path, folder: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    named = folder.format(shapes=shapes) if isinstance(folder, str) else folder
    with pytest.raises(v.ConfigError, match=message):
        v.finetune(named, out=tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()
