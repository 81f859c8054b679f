"""What `tune` takes."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.tuning import TuneInfer, TuneTrain


def test_minutes_are_the_old_name_of_the_time() -> None:
    request, _ = parse(TuneTrain, ["resnet50", "--minutes", "5", "-o", "fast.toml", "--overwrite"], "tune train")
    assert request == TuneTrain(recipe="resnet50", time="5m", out="fast.toml", overwrite=True)


def test_the_batch_is_that_of_the_work_which_is_tuned() -> None:
    assert TuneTrain(batch=8).changes() == {"global_batch": 8}
    assert TuneInfer(batch=8).changes() == {"machine.eval_batch": 8}


@pytest.mark.parametrize(("name", "value"), [("time", "0s"), ("time", "10"), ("batch", 0), ("seed", "x")])
def test_what_is_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        TuneTrain(**{name: value})  # type: ignore[arg-type]
    assert set(refused.value.given) == {name}


def test_only_training_can_split_its_batch() -> None:
    assert parse(TuneTrain, ["--allow-split"], "tune train")[0].allow_split
    with pytest.raises(ConfigError, match="--allow-split"):
        parse(TuneInfer, ["--allow-split"], "tune infer")
