from pathlib import Path

import pytest

from vernier.config import Config, Data, Machine, Model, Recipe, to_dict
from vernier.errors import ConfigError
from vernier.measure.planning.workload import read_measured_run, speed_of, workload_of
from vernier.records.codec import encode
from vernier.records.run import RunSummary, TrainingSpeed
from vernier.store import RunDir

RECIPE = Recipe(name="small", global_batch=64, model=Model(name="resnet18", num_classes=10), data=Data(image_px=64))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A finished run of two processes that trained at 100 images per second per device."""
    run = RunDir.create(tmp_path, "small")
    run.write_config(to_dict(Config(recipe=RECIPE, machine=Machine(procs=2, accumulation=2))))
    speed = TrainingSpeed(images_per_s_total=200, images_per_s_per_device=100, devices=2, method="m")
    run.write_status("finished", summary=encode(RunSummary(training=speed)))
    return run


def test_a_run_gives_its_speed_and_its_batch_per_device(run: RunDir) -> None:
    work, basis = workload_of(RECIPE, str(run.path), batch=1)
    assert (work.images_per_s, work.measured_batch) == (100, 16)
    assert "100.0 img/s per device" in basis


def test_the_speed_of_another_network_is_scaled_by_its_operations(run: RunDir) -> None:
    larger = Recipe(model=Model(name="resnet50", num_classes=10), data=Data(image_px=64))
    work, _ = workload_of(larger, str(run.path), batch=1)
    assert work.images_per_s == pytest.approx(100 * 1.8 / 4.1, rel=0.05)


def test_a_number_is_taken_as_it_is() -> None:
    work, basis = workload_of(RECIPE, "250", batch=32)
    assert (work.images_per_s, work.measured_batch) == (250, 32)
    assert basis == "250 img/s of one device, as given"
    assert speed_of("1000")[1] == "1000 img/s of ResNet-50 at 224 px"


@pytest.mark.parametrize("rate", ["0", "-1", "inf"])
def test_a_rate_that_is_no_speed_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        workload_of(RECIPE, rate, batch=1)
    with pytest.raises(ConfigError, match="more than 0"):
        speed_of(rate)


def test_a_run_without_a_measured_speed_is_refused(run: RunDir) -> None:
    run.write_status("running")
    with pytest.raises(ConfigError, match="no measured training speed yet"):
        read_measured_run(run.path)
