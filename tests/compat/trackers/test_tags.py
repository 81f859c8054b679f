"""The names under which trackers keep a run's figures."""

from vernier.compat.trackers import tags
from vernier.records.events import EpochEvent, EvalEvent, StartEvent, StepEvent
from vernier.records.what_ran import WhatRan


def test_a_step_event_gives_means_per_step_and_the_rate_of_all_processes() -> None:
    event = StepEvent(
        step=8,
        epoch=0.5,
        loss=1.5,
        lr=0.1,
        samples=32,
        step_s=(1.0, 3.0),
        wait_s=(0.0, 1.0),
        loss_scale=128.0,
        top1=25.0,
        top5=50.0,
    )
    assert tags.of_event(event) == {
        "train/loss": 1.5,
        "train/top1": 25.0,
        "train/top5": 50.0,
        "train/lr": 0.1,
        "train/step_s": 2.0,
        "train/data_wait_s": 0.5,
        "train/images_per_s_total": 8.0,
        "train/epoch": 0.5,
        "train/loss_scale": 128.0,
    }


def test_an_evaluation_gives_the_figures_it_has() -> None:
    event = EvalEvent(step=8, epoch=0.5, samples=50, figures={"AP": 0.25, "APl": None, "AR1": 0.5})
    assert tags.of_event(event) == {"val/AP": 0.25, "val/AR1": 0.5}


def test_an_epoch_has_the_figures_that_were_recorded() -> None:
    assert tags.of_event(EpochEvent(step=8, epoch=1)) == {}
    event = EpochEvent(step=8, epoch=1, samples=64, seconds=4.0, images_per_s_total=16.0, loss=1.5, top1=25.0)
    assert tags.of_event(event) == {
        "train/epoch_seconds": 4.0,
        "train/epoch_loss": 1.5,
        "train/epoch_top1": 25.0,
        "train/epoch_images_per_s_total": 16.0,
    }


def test_settings_become_plain_names() -> None:
    tree = {"recipe": {"optim": {"lr": 0.1, "nesterov": True}, "data": {"mean": [1, 2]}}, "limits": {"max_steps": None}}
    expected = {"recipe.optim.lr": 0.1, "recipe.optim.nesterov": True, "recipe.data.mean": "[1, 2]"}
    assert tags.hyperparameters(tree) == expected


def test_what_ran_is_searchable_and_marks_smoke_runs() -> None:
    ran = WhatRan(
        kind="train",
        network="resnet8-small, width 32",
        parameters=312_000,
        gmac=0.0169,
        image_px=64,
        classes=10,
        batch_per_device=32,
        data="shapes",
        smoke=True,
    )
    labels = tags.what_ran(StartEvent(ran=ran))
    assert labels["ran"] == ran.line()
    assert labels["ran.network"].startswith("resnet8-small, width 32")
    assert (labels["ran.image_size"], labels["ran.batch"], labels["ran.data"]) == ("64 px", "batch 32", "shapes")
    assert labels["ran.smoke"] == "yes"
    assert tags.what_ran(StartEvent()) == {}
