"""What the benchmarks take."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.benchmarks import BenchArm, BenchInfer, BenchScaling, BenchTrain
from vernier.requests.declaring import Request


def test_values_with_commas_are_configurations_and_no_settings() -> None:
    request, _ = parse(
        BenchTrain, ["resnet50", "--batch", "1,2,2", "--precisions", "fp32,bf16", "--modes", "graph"], "bench train"
    )
    assert request == BenchTrain(recipe="resnet50", batch=(1, 2), precision=("fp32", "bf16"), mode=("compile",))
    assert request.changes() == {}


def test_scaling_has_one_batch_precision_and_mode_which_are_settings() -> None:
    request, _ = parse(BenchScaling, ["--gpus", "1,2x4", "--batch-size", "32", "--precision", "bf16"], "bench scaling")
    assert request.procs == ("1", "2x4")
    assert request.changes() == {"global_batch": 32, "machine.precision": "bf16"}


def test_int8_is_one_more_configuration_and_no_setting() -> None:
    assert BenchInfer(int8=True, device="cpu").changes() == {"machine.device": "cpu"}


def test_a_run_is_given_as_the_recipe_or_by_its_flag() -> None:
    assert parse(BenchInfer, ["runs/x"], "bench infer")[0] == parse(BenchInfer, ["--run", "runs/x"], "bench infer")[0]


def test_old_names_take_the_old_units() -> None:
    request, _ = parse(BenchTrain, ["--max-seconds", "3", "--precision-target", "2%"], "bench train")
    assert (request.max_time, request.target_width) == ("3s", "2%")


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (BenchTrain, "repeats", 0),
        (BenchTrain, "max_time", "0s"),
        (BenchTrain, "steps", 0),
        (BenchTrain, "target_width", "0%"),
        (BenchTrain, "batch", (4, 0)),
        (BenchTrain, "memory_limit", 0.0),
        (BenchTrain, "mode", ("fast",)),
        (BenchInfer, "scenarios", ("online",)),
        (BenchInfer, "engine", ("tensorrt",)),
    ],
)
def test_what_is_out_of_range_or_unknown_is_refused(cls: type[Request], name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        cls(**{name: value})
    assert set(refused.value.given) == {name}


def test_what_has_to_be_given_is_asked_for() -> None:
    for cls, name in ((BenchScaling, "--procs"), (BenchArm, "REQUEST")):
        with pytest.raises(ConfigError, match=name):
            parse(cls, [], cls.command)
