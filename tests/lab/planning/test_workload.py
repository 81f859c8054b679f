"""The speed behind a plan: measured on the same network, given, or refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from vernier.config import Config, Data, Machine, Model, Recipe, to_dict
from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS
from vernier.lab.planning.workload import (
    mean_gmac,
    read_measured_run,
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


def test_a_run_of_an_older_version_is_described_from_its_configuration(run: RunDir) -> None:
    run.write_status("finished", summary=encode(RunSummary(training=SPEED)))
    assert read_measured_run(run.path).ran.line().startswith("train resnet18 (11.2 M parameters, 0.148 GMAC) · 64 px")


def test_another_model_is_refused(run: RunDir) -> None:
    with pytest.raises(ConfigError, match=r"resnet18 at 64 px, and small trains resnet50 at 64 px") as refused:
        workload_of(_with_network("resnet50"), str(run.path), 1, NETWORK)
    assert [words for words, _ in refused.value.works] == ["bench.train"]


def test_another_image_size_or_width_is_another_network(run: RunDir) -> None:
    larger = replace(CONFIG, recipe=replace(RECIPE, data=Data(image_px=128)))
    narrow = replace(CONFIG, recipe=replace(RECIPE, model=replace(RECIPE.model, width=32)))
    for config, text in ((larger, "resnet18 at 128 px"), (narrow, "resnet18, width 32 at 64 px")):
        with pytest.raises(ConfigError, match=text):
            workload_of(config, str(run.path), 1, NETWORK)


def test_another_device_or_precision_is_refused(run: RunDir) -> None:
    with pytest.raises(ConfigError) as refused:
        workload_of(CONFIG, str(run.path), 1, NETWORKS["dgx-a100"])
    assert refused.value.given == {"network": "dgx-a100"}
    with pytest.raises(ConfigError) as refused:
        workload_of(replace(CONFIG, machine=Machine(precision="bf16")), str(run.path), 1, NETWORK)
    assert refused.value.given == {"machine.precision": "bf16"}


def test_a_number_is_taken_as_it_is() -> None:
    work, basis = workload_of(CONFIG, "250", 32, NETWORKS["dgx-a100"])
    assert (work.images_per_s, work.measured_batch) == (250, 32)
    assert basis.text == "250 img/s per device at batch 32, as given, taken to be the speed of this recipe"


@pytest.mark.parametrize("rate", ["0", "-1", "inf"])
def test_a_rate_that_is_no_speed_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError) as refused:
        workload_of(CONFIG, rate, 1, NETWORK)
    assert refused.value.given == {"bench": rate}


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
