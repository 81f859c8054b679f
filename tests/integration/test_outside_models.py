"""Outside models where processes of their own build them: benchmarks, profiles, tuning, compiled training."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.conftest import REPO
from vernier.errors import ConfigError
from vernier.lab.api.tuning import prepare
from vernier.lab.requests.tuning import TuneTrain

HERE = REPO / "tests" / "compat" / "models"
SMALL = {"data.image_px": 32, "machine.threads": 1, "machine.workers": 0}
MODELS = ("my_models.py:Net(width=8)", "timm:test_resnet", "torchvision:resnet18(width_per_group=64)")
FAMILIES = ("timm:test_convnext", "timm:test_efficientnet", "timm:test_vit")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user with a file of models. Processes that are started can import timm and torchvision."""
    shutil.copy(HERE / "my_models.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE / "stand_in"), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def _needs(model: str) -> None:
    if model.startswith(("timm:", "torchvision:")):
        # After the operators that torchvision's import looks up, which other PyTorch builds lack.
        from tests.compat.models import torchvision_operators

        assert torchvision_operators
        pytest.importorskip(model.partition(":")[0], reason="it is not installed", exc_type=ImportError)


@pytest.mark.parametrize("model", [*MODELS, *FAMILIES])
def test_training_and_inference_are_benchmarked(model: str) -> None:
    _needs(model)
    bench = v.bench_train if model in FAMILIES[:2] else v.bench_infer
    measured = bench(model, data="synthetic", repeats=1, steps=2, batch=2, settings=SMALL, quiet=True)
    (rate,) = measured.rates.values()
    assert rate.value > 0
    assert model in (measured.path / "bench.json").read_text()
    assert not measured.path.name.endswith("-")


@pytest.mark.parametrize("model", MODELS[:2])
def test_a_profile_has_the_kernels_of_its_steps(model: str) -> None:
    _needs(model)
    profile = v.profile_train(model, data="synthetic", range="2:2", batch=2, settings=SMALL, quiet=True)
    assert any("convolution" in each.name for each in profile.summary.top)
    assert model in (profile.path / "run.json").read_text()


def test_tuning_takes_it() -> None:
    """What is measured; a whole search takes minutes."""
    request = TuneTrain(recipe=MODELS[0], batch=4, settings=("data.image_px=32",))
    assert prepare(request).config.recipe.model.name == MODELS[0]


def test_a_compiled_model_trains_as_an_eager_one(shapes: Path) -> None:
    options: dict[str, Any] = {"data": shapes, "global_batch": 16, "max_steps": 2, "epochs": 1, "train_only": True}
    options |= {"quiet": True, "tensorboard": False, "procs": 1, "settings": {**SMALL, "limits.log_every_steps": 1}}
    losses = []
    for mode in ("eager", "trace", "compile"):
        run = v.train(model=MODELS[0], mode=mode, **options)
        assert run.status == "finished"
        losses.append(run.events("step")[-1].loss)
    assert losses[0] == pytest.approx(losses[2], rel=1e-3)


def test_an_object_of_the_session_is_refused_with_the_reason() -> None:
    from torch import nn

    with pytest.raises(ConfigError, match=r"only the Python session that made this object has it.*file\.py:name"):
        v.bench_train(model=nn.Flatten(), data="synthetic", repeats=1, steps=1, batch=2, quiet=True)
