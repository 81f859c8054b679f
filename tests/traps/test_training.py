"""A training does what its command says: the network, the schedule, the rate and the sizes that were typed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done, only_run

Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def explain(vernier_here: Callable[..., Done]) -> Explain:
    """`vernier train ... --explain --json`: what a training would do."""

    def run(*arguments: str) -> dict[str, Any]:
        done = vernier_here("train", *arguments, "--explain", "--json")
        assert done.code == 0, done.err
        result: dict[str, Any] = json.loads(done.out)
        return result

    return run


def test_model_resnet50_is_the_published_resnet50(explain: Explain) -> None:
    """`--model resnet50` kept the default recipe's half width and 64 pixels."""
    ran = explain("--model", "resnet50")["ran"]
    assert (ran["network"], ran["image_px"]) == ("resnet50", 224)
    assert ran["parameters"] == 25_557_032 - 990 * 2049


def test_model_of_a_named_recipe_is_the_published_one_too(explain: Explain) -> None:
    """`shapes-quick --model resnet18 --set data.image_px=128` had 3 million parameters instead of 11."""
    ran = explain("shapes-quick", "--model", "resnet18", "--set", "data.image_px=128")["ran"]
    assert (ran["network"], ran["image_px"], ran["parameters"]) == ("resnet18", 128, 11_181_642)


def test_a_width_that_was_set_is_part_of_the_name(explain: Explain) -> None:
    """A network that is not as published was shown under the published name."""
    assert explain("--model", "resnet50", "--set", "model.width=32")["ran"]["network"] == "resnet50, width 32"


def test_a_network_name_works_as_a_recipe(explain: Explain) -> None:
    """`vernier train resnet50` knew no such recipe."""
    assert explain("resnet50")["ran"]["parameters"] == 25_557_032


def test_documented_fine_tuning_uses_its_rate_and_drops_it(explain: Explain) -> None:
    """`--lr 0.005 --global-batch 32` trained with an eighth of that, and `--epochs 20` never reached a milestone."""
    flags = ("--epochs", "20", "--lr", "0.005", "--global-batch", "32")
    result = explain("torchvision-resnet50-v1", *flags)
    assert result["derived"]["lr"] == max(result["rates"]) == 0.005
    assert result["rates"][-1] == pytest.approx(0.005 / 100)


@pytest.mark.parametrize(
    ("recipe", "epochs", "last_over_peak"),
    [("cifar10", "20", 0.01), ("mlperf-ssd", "10", 0.01), ("habana-resnet50-lars", "10", 0.01)],
)
def test_fewer_epochs_still_lower_the_rate(explain: Explain, recipe: str, epochs: str, last_over_peak: float) -> None:
    """`--epochs` left the milestones where they were, so that the rate stayed high."""
    rates = explain(recipe, "--epochs", epochs)["rates"]
    assert rates[-1] <= 1.1 * last_over_peak * max(rates)


def test_one_epoch_is_not_all_warm_up(explain: Explain) -> None:
    """`vernier train --epochs 1` only ever raised the rate."""
    rates = explain("--epochs", "1")["rates"]
    assert rates.index(max(rates)) < len(rates) / 3
    assert rates[-1] < 0.01 * max(rates)


def test_fewer_epochs_still_reach_the_final_image_size(explain: Explain) -> None:
    """`ffcv-* --epochs 8` never left 160 pixels."""
    assert explain("ffcv-resnet50-16e", "--epochs", "8")["image_sizes"][-1][1] == 192


def test_scaling_the_schedule_is_said(explain: Explain) -> None:
    """`--epochs` must scale the schedule and say so."""
    assert "milestones 10, 15" in explain("cifar10", "--epochs", "20")["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cifar10", "--set", "schedule.epochs=20"), "no milestone is reached"),
        (("nvidia-resnet50-90e", "--set", "schedule.epochs=10"), "the warm-up takes 8 of 10 epochs"),
        (("ffcv-resnet50-16e", "--set", "schedule.epochs=5"), "never leaves 160 px"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_a_warning(explain: Explain, arguments: tuple[str, ...], words: str) -> None:
    """Schedules that never leave their first phase started without a word."""
    assert words in " ".join(explain(*arguments)["warnings"])


def test_the_image_size_moves_the_evaluation(
    explain: Explain, tiny: list[str], vernier_here: Callable[..., Done]
) -> None:
    """`data.image_px=128` trained at 128 and evaluated, predicted and exported at 64."""
    assert "128 px" in explain("shapes-quick", "--set", "data.image_px=128")["notes"][0]
    config = explain("torchvision-resnet50-v1", "--set", "data.image_px=32")
    assert config["ran"].get("eval_px") is None


def test_a_recipe_file_with_another_image_size_evaluates_at_that_size(explain: Explain, tmp_path: Path) -> None:
    """A file made by `recipes show` with another data.image_px still evaluated at the old size."""
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[model]\nname = "resnet18"\n[data]\nimage_px = 96\n')
    ran = explain(str(file))["ran"]
    assert ran["image_px"] == 96
    assert "eval_px" not in ran


def test_lars_with_another_batch_is_refused_without_a_rate(vernier_here: Callable[..., Done]) -> None:
    """`habana-resnet50-lars --global-batch 256` kept the rate of a batch of 2,048."""
    done = vernier_here("train", "habana-resnet50-lars", "--global-batch", "256", "--explain")
    assert done.code == 2
    assert "--lr" in done.err
    assert vernier_here("train", "rsb-a2", "--global-batch", "512", "--explain").code == 2


def test_the_arithmetic_of_the_rate_is_shown(explain: Explain) -> None:
    """The banner showed a scaled rate as if it had been typed."""
    assert explain("torchvision-resnet50-v1", "--global-batch", "32")["lr_rule"] == "0.1 per 256 x 32 = 0.0125"


def test_the_run_directory_and_banner_name_what_ran(vernier_here: Callable[..., Done], tiny: list[str]) -> None:
    """Another network ran in a directory called after the recipe alone, and no line named the image size."""
    done = vernier_here("train", *tiny, "--model", "resnet14-small", "--train-only")
    assert done.code == 0, done.err
    run = only_run(Path(tiny[tiny.index("--out") + 1]))
    assert "shapes-quick-resnet14-small" in run.name
    for words in ("resnet14-small", "GMAC", "32 px", "torch 2.", "Vernier 0."):
        assert words in done.err
        assert words in done.out


def test_a_smoke_run_is_marked_everywhere(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    """`--smoke` runs looked like results."""
    done = vernier_here("train", "--smoke", "--out", str(tmp_path))
    assert done.code == 0, done.err
    assert "smoke-shapes-quick" in only_run(tmp_path).name
    assert "SMOKE RUN" in done.err
    assert "SMOKE RUN" in done.out
