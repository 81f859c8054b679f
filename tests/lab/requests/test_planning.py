"""What `plan` and `submit` take."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS
from vernier.lab.requests.planning import Plan, Submit
from vernier.requests.declaring import option_of


def test_every_network_can_be_chosen() -> None:
    network = option_of(Plan, "network")
    assert network is not None
    assert network.form.choices == tuple(NETWORKS)


def test_a_submission_needs_recipe_scheduler_and_machine() -> None:
    request, _ = parse(Submit, ["r.toml", "--to", "ssh", "--machine", "m.toml", "--set", "seed=1", "-o", "x"], "submit")
    assert request == Submit(recipe="r.toml", to="ssh", machine="m.toml", settings=("seed=1",), out="x")
    for words in ("r.toml --to ssh", "r.toml --machine m.toml", "--to ssh --machine m.toml"):
        with pytest.raises(ConfigError):
            parse(Submit, words.split(), "submit")


@pytest.mark.parametrize(("name", "value"), [("batch", 0), ("watts", float("nan")), ("spread", "0%"), ("host_us", 0.0)])
def test_what_is_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Plan(recipe="resnet18", bench="100", **{name: value})  # type: ignore[arg-type]
    assert set(refused.value.given) == {name}
