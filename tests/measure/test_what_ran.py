"""The record of what ran is filled in from the configuration."""

import pytest

from vernier import recipes
from vernier.config import Config, Machine
from vernier.measure.what_ran import describe_feeding, describe_old_run, describe_run
from vernier.records.environment import DeviceInfo, Environment
from vernier.records.events import Loading, StartEvent
from vernier.records.what_ran import WhatRan


def ran(config: Config, *, whole_run: bool = False, px: int | None = None) -> WhatRan:
    return describe_run(
        config,
        "train",
        image_px=px or config.recipe.data.image_px,
        classes=1000,
        channels=3,
        batch_per_device=8,
        devices=1,
        feeding="",
        device_kind="cpu",
        device=DeviceInfo(index=0, name="Some CPU"),
        threads=2,
        whole_run=whole_run,
    )


def test_the_published_network_has_its_published_cost() -> None:
    record = ran(recipes.load("resnet50"))
    assert (record.network, record.parameters, record.image_px) == ("resnet50", 25_557_032, 224)
    assert record.gmac == pytest.approx(4.089, abs=0.001)
    assert record.device == "cpu (Some CPU)"


def test_what_a_recipe_changed_about_the_network_is_in_its_name() -> None:
    assert ran(recipes.load("shapes-quick")).network == "resnet8-small, width 32, imagenet stem"


def test_a_whole_training_names_all_its_sizes_and_a_measurement_its_own() -> None:
    config = recipes.load("ffcv-resnet50-16e")
    whole, steps = ran(config, whole_run=True), ran(config, px=160)
    assert (whole.start_px, whole.image_px, whole.eval_px) == (160, 192, 256)
    assert (steps.start_px, steps.image_px, steps.eval_px) == (None, 160, None)
    assert steps.gmac < whole.gmac


def test_gradients_that_are_not_exchanged_as_usual_are_named() -> None:
    def exchange(devices: int = 2, **settings: object) -> str | None:
        config = Config(recipe=recipes.get("shapes-quick"), machine=Machine(**settings))  # type: ignore[arg-type]
        return describe_old_run(config, devices=devices).gradients

    assert exchange() is None
    assert exchange(bucket_mb=5) == "buckets of 5 MiB"
    assert exchange(bucket_mb=5, devices=1) is None
    line = describe_old_run(Config(machine=Machine(bucket_mb=50)), devices=2).line()
    assert " x 2 devices, buckets of 50 MiB · " in line


@pytest.mark.parametrize(
    ("source", "loading", "words"),
    [
        ("static", None, "the same random pixels in every batch copied from memory by 2 loader threads"),
        ("photos", None, "2 loader threads"),
        ("photos", Loading(cache="memory"), "2 loader threads, decoded images cached in memory"),
        ("photos", Loading(backend="dali-cpu"), "2 loader threads (dali-cpu)"),
    ],
)
def test_how_images_were_fed_is_in_words(source: str, loading: Loading | None, words: str) -> None:
    assert describe_feeding(source, loading, 2) == words


def test_a_run_that_did_not_record_it_is_described_from_its_files() -> None:
    config = recipes.load("shapes-quick")
    start = StartEvent(classes=10, device="cpu", threads=2, world=2, time="2026-01-02T03:04:05+00:00")
    environment = Environment(versions={"torch": "2.13.0", "vernier": "0.1.0"}, git_commit="b2a6a81aaaa")
    record = describe_old_run(config, start, environment)
    assert (record.network, record.image_px, record.classes) == ("resnet8-small, width 32, imagenet stem", 64, 10)
    assert (record.devices, record.torch, record.vernier, record.date) == (2, "2.13.0", "0.1.0 (b2a6a81)", "2026-01-02")
    later = Environment(versions={"vernier": "0.4.0.dev0 (b2a6a81, modified)"}, git_commit="b2a6a81-dirty")
    assert describe_old_run(config, start, later).vernier == "0.4.0.dev0 (b2a6a81, modified)"


def test_an_old_measurement_took_the_first_size_and_knows_no_classes() -> None:
    config = recipes.load("ffcv-resnet50-16e")
    training = describe_old_run(config, batch_per_device=8, whole_run=False)
    assert (training.image_px, training.start_px, training.batch_per_device) == (160, None, 8)
    assert "classes not recorded" in training.line()
    assert describe_old_run(config, kind="infer", whole_run=False).image_px == 256
