"""Plans that were for another training than the recipe's, or from another network's speed."""

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done

Runner = Callable[..., Done]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "0.1"


def test_a_plan_keeps_the_recipes_batch(vernier_here: Runner) -> None:
    """The plan of a recipe of batch 2,048 went up to batch 131,072 at the same 90 epochs: a training nobody can do."""
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--json")
    rows = done.json()["rows"]
    assert {row["global_batch"] for row in rows} == {2048}
    assert max(row["devices"] for row in rows) == 2048  # one image per device
    shown = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470")
    assert "Stopped at 2,048 devices: with 4,096, a device would have less than one image." in shown.err


def test_weak_scaling_is_asked_for_and_marked_in_every_row(vernier_here: Runner) -> None:
    """A growing batch was shown without a word that it is not the recipe's."""
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--devices", "8..32", "--weak")
    assert done.code == 0, done.err
    assert "4,096 (not the recipe's)" in done.out
    assert "8,192 (not the recipe's)" in done.out


def test_a_plan_from_another_networks_speed_is_refused(vernier_here: Runner) -> None:
    """The speed of a small network at 32 pixels was scaled to ResNet-50 without a word, and was 41 % off."""
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", str(GOLDEN / "classifier"))
    assert done.code == 2
    assert "measured resnet8-small, width 8 at 32 px" in done.err
    assert "trains resnet50 at 224 px" in done.err


def test_predictions_have_a_range_and_no_digits_beyond_it(vernier_here: Runner) -> None:
    """The plan printed "10337.2 img/s" where its own check admits errors of 53 %."""
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--network", "dgx-a100", "--devices", "8,128")
    assert "160,000 (110,000 to 200,000)" in done.out


def test_columns_are_explained(vernier_here: Runner) -> None:
    """Nobody knew what `exposed_ms` and `limit: slowest` were."""
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--devices", "8")
    assert "exposed_ms" not in done.out
    assert "not hidden: communication per step that does not run beside the backward pass" in done.err
    assert "slowest device (the others wait for it)" in done.err
