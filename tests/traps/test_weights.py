"""Weight files that are not what they seem: each is loaded, or refused in a sentence that names the cause."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Done
from vernier.models import build

Vernier = Callable[..., Done]
State = dict[str, torch.Tensor]


@pytest.fixture
def state() -> State:
    return dict(build("resnet8-small", num_classes=10).state_dict())


@pytest.fixture
def evaluate(shapes: Path, vernier_here: Vernier, tmp_path: Path) -> Callable[..., Done]:
    """Evaluate what a torch file holds, as weights of resnet8-small."""

    def run(content: Any, *arguments: str) -> Done:
        file = tmp_path / "w.pth"
        torch.save(content, file)
        chosen = ["--model", "resnet8-small", "--weights", str(file), "--data", str(shapes), "--max-eval-steps", "1"]
        return vernier_here("eval", *chosen, *arguments)

    return run


def test_weights_that_are_not_numbers_are_refused_by_layer(evaluate: Callable[..., Done], state: State) -> None:
    """NaN weights were evaluated with exit code 0 and a loss of nan."""
    state["layer2.0.conv1.weight"][3] = float("nan")
    done = evaluate(state)
    assert done.code == 1
    assert "values of layer2.0.conv1.weight are NaN or infinite" in done.err


def test_a_sparse_tensor_is_refused_in_a_sentence(evaluate: Callable[..., Done], state: State) -> None:
    """A sparse tensor in a .pth was a traceback."""
    state["fc.weight"] = state["fc.weight"].to_sparse()
    done = evaluate(state)
    assert done.code == 2
    assert "fc.weight is a sparse (sparse_coo) tensor" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("prefix", ["net.", "resnet.", "encoder.", "module.net."])
def test_a_prefix_that_all_names_have_is_removed(prefix: str, evaluate: Callable[..., Done], state: State) -> None:
    """Names such as `net.conv1.weight` were not recognised, and the error listed missing layers."""
    done = evaluate({prefix + name: tensor for name, tensor in state.items()})
    assert done.code == 0, done.err


def test_a_prefix_that_most_names_have_is_named(evaluate: Callable[..., Done], state: State) -> None:
    """Where a prefix cannot be removed, the error listed missing layers without naming it."""
    head = {name: tensor for name, tensor in state.items() if name.startswith("fc.")}
    done = evaluate({**head, **{f"encoder.{name}": tensor for name, tensor in state.items() if name not in head}})
    assert done.code == 2
    assert "start with 'encoder.'" in done.err


@pytest.mark.parametrize("container", ["net", "weights", "params_ema"])
def test_weights_in_a_container_are_taken_out(container: str, evaluate: Callable[..., Done], state: State) -> None:
    """Files with weights under `net`, `weights` or `params_ema` were refused."""
    done = evaluate({container: state, "epoch": 3})
    assert done.code == 0, done.err
    assert ("averaged weights (params_ema)" in done.out) == (container == "params_ema")


def test_averaged_weights_in_a_file_are_not_passed_over_in_silence(evaluate: Callable[..., Done], state: State) -> None:
    """A file with raw and averaged weights was evaluated raw without a word about --ema."""
    other = build("resnet8-small", num_classes=10).state_dict()
    both = {"state_dict": state, "state_dict_ema": dict(other)}
    averaged, raw = evaluate(both), evaluate(both, "--no-ema")
    assert "averaged weights (state_dict_ema); --no-ema " in averaged.out
    assert "raw weights (state_dict), not the averaged ones" in raw.out
    assert averaged.out.split("loss")[1][:8] != raw.out.split("loss")[1][:8]


def test_weights_of_another_width_name_the_settings_that_fit(evaluate: Callable[..., Done], state: State) -> None:
    """`They look like resnet8-small` was said when resnet8-small was asked for."""
    wide = build("resnet8-small", num_classes=10, width=32, stem="imagenet").state_dict()
    done = evaluate(dict(wide))
    assert done.code == 2
    assert "look like resnet8-small" not in done.err
    assert "--set model.width=32" in done.err
    assert "--set model.stem=imagenet" in done.err
    assert evaluate(dict(wide), "--set", "model.width=32", "--set", "model.stem=imagenet").code == 0


def test_a_file_that_names_no_network_is_answered_with_a_guess(
    shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    """`--weights` without `--model` said only that a weights file does not name its network."""
    torch.save(build("resnet18", num_classes=10, width=8).state_dict(), tmp_path / "w.pth")
    done = vernier_here("eval", "--weights", str(tmp_path / "w.pth"), "--data", str(shapes))
    assert done.code == 2
    assert "they look like resnet18" in done.err
