"""The speed behind a plan: measured on the same network, given, converted on request, or refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from vernier.config import Augment, Config, Data, Machine, Model, Recipe, Schedule, to_dict
from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS
from vernier.lab.planning.workload import (
    CONVERSION_SPAN,
    Speed,
    device_hours,
    hours_and_range,
    mean_gmac,
    read_measured_run,
    speed_of,
    workload_of,
)
from vernier.measure.what_ran import describe_old_run
from vernier.models import info
from vernier.records.codec import encode
from vernier.records.run import RunSummary, TrainingSpeed
from vernier.store import RunDir

RECIPE = Recipe(name="small", global_batch=64, model=Model(name="resnet18", num_classes=10), data=Data(image_px=64))
CONFIG = Config(recipe=RECIPE)
NETWORK = NETWORKS["ethernet-100g"]
SPEED = TrainingSpeed(
    images_per_s_total=200,
    images_per_s_per_device=100,
    devices=2,
    method="m",
    images_per_s_total_95=(190, 212),
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A finished run of two processes that trained at 100 images per second per device."""
    run = RunDir.create(tmp_path, "small")
    config = Config(recipe=RECIPE, machine=Machine(procs=2, accumulation=2, device="cpu"))
    run.write_config(to_dict(config))
    run.write_status("finished", summary=encode(RunSummary(training=SPEED, ran=describe_old_run(config, devices=2))))
    return run


def _with_network(name: str) -> Config:
    return replace(CONFIG, recipe=replace(RECIPE, model=replace(RECIPE.model, name=name)))


def test_a_run_gives_its_speed_its_interval_and_its_batch_per_device(run: RunDir) -> None:
    work, basis = workload_of(CONFIG, str(run.path), 1, NETWORK)
    assert (work.images_per_s, work.measured_batch, work.speed_span) == (100, 32, (0.95, 1.06))
    assert basis.text == f"100 img/s per device, measured in {run.path.name}, 2 processes exchanging gradients"
    assert basis.ran is not None
    assert basis.ran.network == "resnet18"
    assert basis.converted_from is None


def test_a_run_of_an_older_version_is_described_from_its_configuration(run: RunDir) -> None:
    run.write_status("finished", summary=encode(RunSummary(training=SPEED)))
    assert read_measured_run(run.path).ran.line().startswith("train resnet18 (11.2 M parameters, 0.148 GMAC) · 64 px")


def test_another_network_is_refused_and_converted_on_request(run: RunDir) -> None:
    larger = _with_network("resnet50")
    with pytest.raises(ConfigError, match=r"resnet18 at 64 px, and small trains resnet50 at 64 px") as refused:
        workload_of(larger, str(run.path), 1, NETWORK)
    assert [works for works in refused.value.works if works[0] == "convert"] == [("convert", True)]
    work, basis = workload_of(larger, str(run.path), 1, NETWORK, convert=True)
    assert work.images_per_s == pytest.approx(100 * 1.8 / 4.1, rel=0.05)
    assert basis.text.startswith("converted from resnet18 at 64 px by arithmetic")
    low, high = CONVERSION_SPAN
    assert work.speed_span == pytest.approx((0.95 * low, 1.06 * high))


def test_another_image_size_or_width_is_another_network(run: RunDir) -> None:
    larger = replace(CONFIG, recipe=replace(RECIPE, data=Data(image_px=128)))
    narrow = replace(CONFIG, recipe=replace(RECIPE, model=replace(RECIPE.model, width=32)))
    for config, text in ((larger, "resnet18 at 128 px"), (narrow, "resnet18, width 32 at 64 px")):
        with pytest.raises(ConfigError, match=text):
            workload_of(config, str(run.path), 1, NETWORK)


def test_no_arithmetic_converts_the_device_or_the_precision(run: RunDir) -> None:
    with pytest.raises(ConfigError) as refused:
        workload_of(CONFIG, str(run.path), 1, NETWORKS["dgx-a100"], convert=True)
    assert refused.value.given == {"network": "dgx-a100"}
    with pytest.raises(ConfigError) as refused:
        workload_of(replace(CONFIG, machine=Machine(precision="bf16")), str(run.path), 1, NETWORK, convert=True)
    assert refused.value.given == {"machine.precision": "bf16"}


def test_a_number_is_taken_as_it_is() -> None:
    work, basis = workload_of(CONFIG, "250", 32, NETWORKS["dgx-a100"])
    assert (work.images_per_s, work.measured_batch) == (250, 32)
    assert basis.text == "250 img/s per device at batch 32, as given, taken to be the speed of this recipe"
    assert speed_of("1000")[1].text == "converted from 1000 img/s of resnet50 at 224 px by arithmetic"


@pytest.mark.parametrize("rate", ["0", "-1", "inf"])
def test_a_rate_that_is_no_speed_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError) as refused:
        workload_of(CONFIG, rate, 1, NETWORK)
    assert refused.value.given == {"bench": rate}
    with pytest.raises(ConfigError) as refused:
        speed_of(rate)
    assert refused.value.given == {"device_hours": rate}


def test_device_hours_from_a_run_are_converted_on_request_only(run: RunDir) -> None:
    with pytest.raises(ConfigError, match="measured resnet18 at 64 px; ") as refused:
        speed_of(str(run.path))
    assert refused.value.works == [("convert", True)]
    speed, basis = speed_of(str(run.path), convert=True)
    assert (speed.images_per_s, speed.gmac) == (100, pytest.approx(0.148, abs=0.001))
    assert basis.converted_from == "resnet18 at 64 px"


def test_device_hours_have_a_range_where_the_speed_is_converted() -> None:
    speed, basis = speed_of("1000")
    same = Recipe(model=Model(name="resnet50"), data=Data(image_px=224))
    hours, between = hours_and_range(same, 1_000_000, speed, basis)
    assert between == (hours, hours)
    other, (low, high) = hours_and_range(RECIPE, 1_000_000, speed, basis)
    assert low < 0.5 * other < 2 * other < high


def test_a_run_without_a_measured_speed_is_refused(run: RunDir) -> None:
    run.write_status("running")
    with pytest.raises(ConfigError, match="no measured training speed yet"):
        read_measured_run(run.path)


def test_a_speed_without_an_interval_says_so(run: RunDir) -> None:
    run.write_status(
        "finished", summary=encode(RunSummary(training=replace(SPEED, images_per_s_total_95=(None, None))))
    )
    work, basis = workload_of(CONFIG, str(run.path), 1, NETWORK)
    assert work.speed_span == (1.0, 1.0)
    assert "its own uncertainty is not known" in basis.text


def test_a_smoke_run_is_refused(run: RunDir) -> None:
    smoke = replace(read_measured_run(run.path).ran, smoke=True)
    run.write_status("finished", summary=encode(RunSummary(training=SPEED, ran=smoke)))
    with pytest.raises(ConfigError, match="is a smoke run, whose speed means nothing"):
        read_measured_run(run.path)


RESNET50 = Model(name="resnet50", num_classes=1000)
RESNET50_GMAC = info("resnet50").gmac


def test_the_operations_of_an_image_are_those_of_the_catalogue() -> None:
    recipe = Recipe(model=RESNET50, data=Data(image_px=224))
    assert mean_gmac(recipe) == pytest.approx(RESNET50_GMAC)
    assert mean_gmac(replace(recipe, data=Data(image_px=448))) > 3.9 * mean_gmac(recipe)


def test_hours_grow_with_epochs_images_and_operations() -> None:
    speed = Speed(images_per_s=1000, gmac=RESNET50_GMAC)
    recipe = Recipe(model=RESNET50, data=Data(image_px=224), schedule=Schedule(epochs=9))
    assert device_hours(recipe, 400_000, speed) == pytest.approx(1.0)
    assert device_hours(recipe, 800_000, speed) == pytest.approx(2.0)
    twice_as_fast = replace(speed, images_per_s=2000)
    assert device_hours(recipe, 400_000, twice_as_fast) == pytest.approx(0.5)


def test_progressive_resizing_makes_a_training_cheaper() -> None:
    speed = Speed(images_per_s=1000, gmac=RESNET50_GMAC)
    whole = Recipe(model=RESNET50, data=Data(image_px=224), schedule=Schedule(epochs=4))
    ramp = replace(whole, augment=Augment(start_px=128, ramp_epochs=(0, 3)))
    assert device_hours(ramp, 400_000, speed) < 0.9 * device_hours(whole, 400_000, speed)
