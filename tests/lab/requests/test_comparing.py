"""The requests of `compare` and `convert`."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.comparing import Compare, Convert


def test_a_side_is_one_run_or_several_with_commas() -> None:
    request, _ = parse(Compare, ["a,b", "c", "--tolerance", "2%"], "compare")
    assert request == Compare(a=("a", "b"), b=("c",), tolerance=0.02)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as refused:
        parse(Compare, ["a", "b", "--tolerance", "0.02"], "compare")
    assert refused.value.given == {"tolerance": "0.02"}


def test_a_format_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="raport") as refused:
        Convert(run="a", to="rapport", out="x")  # type: ignore[arg-type]
    assert refused.value.given == {"to": "rapport"}
