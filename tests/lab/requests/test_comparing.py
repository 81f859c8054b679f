"""The request of `compare`."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.comparing import Compare


def test_a_side_is_one_run_or_several_with_commas() -> None:
    request, _ = parse(Compare, ["a,b", "c", "--tolerance", "2%"], "compare")
    assert request == Compare(a=("a", "b"), b=("c",), tolerance=0.02)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as refused:
        parse(Compare, ["a", "b", "--tolerance", "0.02"], "compare")
    assert refused.value.given == {"tolerance": "0.02"}
