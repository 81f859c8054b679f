"""The names under which trackers keep a run's figures."""

from vernier.records.events import EpochEvent, EvalEvent, StepEvent
from vernier.report.live import tags


def test_a_step_event_gives_means_per_step_and_the_rate_of_all_processes() -> None:
    event = StepEvent(
        step=8, epoch=0.5, loss=1.5, lr=0.1, samples=32, step_s=(1.0, 3.0), wait_s=(0.0, 1.0), loss_scale=128.0
    )
    assert tags.of_event(event) == {
        "train/loss": 1.5,
        "train/lr": 0.1,
        "train/step_s": 2.0,
        "train/data_wait_s": 0.5,
        "train/images_per_s_total": 8.0,
        "train/epoch": 0.5,
        "train/loss_scale": 128.0,
    }


def test_an_evaluation_gives_the_figures_it_has() -> None:
    event = EvalEvent(step=8, epoch=0.5, samples=50, figures={"AP": 0.25, "APl": None, "AR1": 0.5})
    assert tags.of_event(event) == {"val/AP": 0.25}
    assert tags.of_event(EpochEvent(step=8, epoch=1)) == {}


def test_settings_become_plain_names() -> None:
    tree = {"recipe": {"optim": {"lr": 0.1, "nesterov": True}, "data": {"mean": [1, 2]}}, "limits": {"max_steps": None}}
    expected = {"recipe.optim.lr": 0.1, "recipe.optim.nesterov": True, "recipe.data.mean": "[1, 2]"}
    assert tags.hyperparameters(tree) == expected
