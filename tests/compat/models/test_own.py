"""Own models through everything that a built-in model goes through."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import vernier as v
from tests.conftest import Done
from vernier.config import Model
from vernier.engine.execution import _fold_batch_norms
from vernier.errors import ConfigError
from vernier.models import build, info, is_detector
from vernier.models.cost import cost_of
from vernier.own_code import refer_to
from vernier.store import RunDir

SOURCE = Path(__file__).with_name("my_models.py")
NAME = "my_models.py:Net(width=8)"
FEW: dict[str, Any] = {"global_batch": 16, "quiet": True, "tensorboard": False, "procs": 1, "epochs": 1}
SMALL = {"data.image_px": 32, "machine.threads": 1, "machine.workers": 0, "machine.eval_batch": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a user with a file of models, which is the current one."""
    path = tmp_path_factory.mktemp("mine")
    shutil.copy(SOURCE, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setattr(sys, "path", list(sys.path))
        yield path


@pytest.fixture(scope="module")
def run(folder: Path, shapes: Path) -> v.Run:
    """Ten steps with what depends on the layout: layer-wise rates, a moving average, blocks that run again."""
    settings = {**SMALL, "optim.layer_decay": 0.8, "ema.decay": 0.9, "machine.activation_checkpointing": True}
    return v.train(model=NAME, data=shapes, out="runs", settings=settings, **FEW)


@pytest.mark.parametrize(
    ("name", "params", "px", "classes"),
    [
        ("Net(width=4)", 2 * (4 * 37 + 8) + 4 * 28 + 4 + 5_000, 224, 1000),
        ("LooksAtValues", 2 * (8 * 73 + 16) + 8 * 28 + 8 + 9_000, 224, 1000),
        ("WithoutLayers", 30, 224, 10),
        ("ForDigits", 30_730, 32, 10),
        ("ten_classes", 490, 224, 10),
    ],
)
def test_any_module_is_counted(folder: Path, name: str, params: int, px: int, classes: int) -> None:
    model = info(f"my_models:{name}")
    assert (model.params, model.input_px, model.classes) == (params, px, classes)
    assert not is_detector(model.name)
    assert cost_of(Model(name=model.name), px=32).params == params


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("my_models:MapsOfFeatures", ["(my_models.py, line 62)", "returns a tensor [2, 8,"]),
        ("my_models:Broken", ["RuntimeError", "(my_models.py, line 68)"]),
        ("my_models:Net(widht=3)", ["widht"]),
        ("my_models:needs", ["TypeError", "missing 1 required positional argument: 'depth'"]),
        ("my_models:needs(depth=3)", ["made an object of type tuple, not an nn.Module"]),
        ("my_models:three", ["is of type int, not an nn.Module"]),
        ("my_models:Nett", ["Did you mean Net?"]),
    ],
)
def test_what_is_no_classifier_is_refused_with_the_line_of_the_user(
    folder: Path, name: str, parts: list[str], shapes: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        v.train(model=name, data=shapes, out="refused", **FEW)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert not Path("refused").exists()


def test_another_number_of_classes_than_the_data_has_is_refused(folder: Path, shapes: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[2, 7\].*one score per image and class: \[2, 10\]"):
        v.train(model=refer_to(nn.Sequential(nn.Flatten(), nn.Linear(3072, 7))), data=shapes, settings=SMALL, **FEW)


def test_the_run_is_one_of_this_model(run: v.Run) -> None:
    assert run.status == "finished"
    assert run.config.recipe.model.name == NAME
    assert run.summary.ran is not None
    assert run.summary.ran.network == NAME


def test_resumed_in_the_middle_it_ends_with_the_same_bits(run: v.Run, folder: Path, shapes: Path) -> None:
    """Dropout draws from PyTorch's generator, which is seeded in every step."""
    settings = {**SMALL, "optim.layer_decay": 0.8, "ema.decay": 0.9, "machine.activation_checkpointing": True}
    options = {"model": NAME, "data": shapes, "out": "again", "settings": settings, **FEW}
    torch.rand(7)  # another state of the generator than the first time
    begun = v.train(max_steps=4, **options)
    again = v.train(resume=begun.path, max_steps=10, **options)
    first, second = (max(each.path.glob("checkpoints/*/model.safetensors")) for each in (run, again))
    assert first.parent.name == second.parent.name
    assert first.read_bytes() == second.read_bytes()


def test_the_file_of_its_weights_has_its_own_names(run: v.Run, vernier_here: Any) -> None:
    done: Done = vernier_here("export", str(run.path), "--out", "net.safetensors")
    assert done.code == 0, done.err
    assert set(load_file("net.safetensors")) == set(build(NAME, num_classes=10).state_dict())
    photo = min(Path(run.config.recipe.data.source, "val").rglob("*.jpg"))
    assert v.load("net.safetensors", model=NAME).predict(photo).score == v.load(run).predict(photo).score


def test_a_file_does_not_choose_the_code_that_runs(run: v.Run, folder: Path, vernier_here: Any) -> None:
    done: Done = vernier_here("export", str(run.path), "--out", "of_code.safetensors")
    assert done.code == 0, done.err
    with pytest.raises(ConfigError, match="names code as its model"):
        v.load("of_code.safetensors")
    with safe_open("of_code.safetensors", framework="pt") as file:
        metadata = {key: text.replace(NAME, "os:mkdir('made')") for key, text in file.metadata().items()}
    save_file(load_file("of_code.safetensors"), "forged.safetensors", metadata)
    with pytest.raises(ConfigError, match="names code as its model"):
        v.load("forged.safetensors")
    assert not Path("made").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("eval", "RUN"),
        ("export", "RUN", "--out", "net.onnx"),
        ("profile", "RUN", "--steps", "2:3"),
        ("train", NAME, "--explain", "--data", "shapes"),
        ("report", "RUN", "--out", "page.html"),
    ],
    ids=lambda words: words[0],
)
def test_commands_take_it(run: v.Run, vernier_here: Any, words: tuple[str, ...]) -> None:
    done: Done = vernier_here(*(str(run.path) if word == "RUN" else word for word in words))
    assert done.code == 0, done.err


def test_batch_norms_are_not_folded_by_the_order_of_registration(folder: Path) -> None:
    model = build(NAME, num_classes=10).eval()
    assert _fold_batch_norms(model) is model


@pytest.mark.slow
def test_two_processes_sum_exactly(run: v.Run, folder: Path, shapes: Path) -> None:
    """The weights after four steps do not depend on the number of processes."""
    settings = {**SMALL, "machine.reduction": "exact", "virtual_shards": 2}
    options = {**FEW, "model": NAME, "data": shapes, "max_steps": 4, "settings": settings, "train_only": True}
    one, two = (v.train(out=f"exact-{procs}", **{**options, "procs": procs}) for procs in (1, 2))
    first, second = (max(each.path.glob("checkpoints/*/model.safetensors")) for each in (one, two))
    assert first.read_bytes() == second.read_bytes()


def test_a_frozen_backbone_stays(folder: Path, shapes: Path, run: v.Run) -> None:
    weights = max(run.path.glob("checkpoints/*/model.safetensors"))
    settings = {**SMALL, "model.freeze": ["backbone"], "model.weights": str(weights), "model.reset_head": True}
    tuned = v.train(model=NAME, data=shapes, out="tuned", max_steps=2, train_only=True, settings=settings, **FEW)
    before, after = load_file(weights), load_file(max(tuned.path.glob("checkpoints/*/model.safetensors")))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}


@pytest.mark.slow
def test_it_is_fine_tuned(run: v.Run, folder: Path, shapes: Path, vernier_here: Any) -> None:
    """From weights of its own, with all that `finetune` chooses: a new head, its warm-up, frozen layers."""
    weights = max(run.path.glob("checkpoints/*/model.safetensors"))
    options: dict[str, Any] = {"model": NAME, "image_px": 32, "epochs": 2, "quiet": True, "out": "finetuned"}
    settings = {"machine.threads": 1, "machine.workers": 0}
    tuned = v.finetune(shapes, weights=weights, settings=settings, **options)
    assert tuned.config.recipe.model.reset_head
    assert tuned.config.recipe.schedule.head_epochs == 1
    kept, after = load_file(weights), load_file(max(tuned.path.glob("checkpoints/*/model.safetensors")))
    assert torch.equal(kept["model.0.weight"], after["model.0.weight"])  # frozen: few images
    assert not torch.equal(kept["head.weight"], after["head.weight"])
    assert len(v.load(tuned.model_file, model=NAME).classes) == 10
    words = ["--model", NAME, "--image-px", "32", "--epochs", "2", "--out", "finetuned", "--set", "machine.threads=1"]
    done: Done = vernier_here("finetune", str(shapes), *words, "--weights", "none")
    assert done.code == 0, done.err
    use_it = next(line.split() for line in done.out.splitlines() if line.startswith("use it"))
    photo = min(shapes.rglob("*.jpg"))
    assert vernier_here(*use_it[3:-1], str(photo)).code == 0, "the command that is printed does not work"
    with pytest.raises(ConfigError) as refused:
        v.finetune(shapes, **options)
    assert ("weights", "none") in refused.value.works


@pytest.mark.parametrize(("name", "device"), [("Net(width=4)", "meta"), ("LooksAtValues", "cpu")])
def test_the_memory_is_an_estimate_and_says_from_what(
    folder: Path, shapes: Path, vernier_here: Any, name: str, device: str
) -> None:
    done: Done = vernier_here("train", "--model", f"my_models:{name}", "--data", str(shapes), "--explain", "--json")
    assert done.code == 0, done.err
    assert done.json()["memory"]["counted_on"] == device


def test_the_folder_of_a_run_does_not_end_in_a_hyphen(run: v.Run) -> None:
    assert run.path.name.endswith("my_models.py-Net-width-8-32px")
    assert not RunDir.create(Path("names"), NAME).path.name.endswith("-")


def test_an_object_of_a_session_is_trained_and_stays_as_it_was(folder: Path, shapes: Path) -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10))
    before = module[2].weight.clone()
    done = v.train(model=refer_to(module), data=shapes, out="objects", max_steps=2, settings=SMALL, **FEW)
    assert done.status == "finished"
    assert torch.equal(module[2].weight, before)


def test_an_option_of_built_in_models_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.width = 8 has no effect on my_models.py:Net"):
        build(NAME, num_classes=3, width=8)
