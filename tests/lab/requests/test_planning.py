"""What `plan` takes."""

import pytest

from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS
from vernier.lab.requests.planning import Plan
from vernier.requests.declaring import option_of


def test_every_network_can_be_chosen() -> None:
    network = option_of(Plan, "network")
    assert network is not None
    assert network.form.choices == tuple(NETWORKS)


@pytest.mark.parametrize(("name", "value"), [("batch", 0), ("watts", float("nan")), ("spread", "0%"), ("host_us", 0.0)])
def test_what_is_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Plan(recipe="resnet18", bench="100", **{name: value})  # type: ignore[arg-type]
    assert set(refused.value.given) == {name}
