import json
from pathlib import Path

import pytest

from vernier.records.codec import encode
from vernier.records.environment import Environment, decode_environment

FILES = sorted((Path(__file__).parents[1] / "golden/0.1").rglob("environment.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_file_of_version_0_1_is_read_and_written_alike(path: Path) -> None:
    tree = json.loads(path.read_text())
    environment = decode_environment(tree)
    assert environment is not None
    assert environment.devices[0].name
    tree.pop("schema")
    assert json.loads(json.dumps(encode(environment))) == tree


def test_a_lost_or_damaged_environment_is_none() -> None:
    assert decode_environment({}) is None
    assert decode_environment({"cpu": "fast"}) is None
    assert decode_environment({"git_commit": "abc"}) == Environment(git_commit="abc")
