"""The messages of `vernier data` about wrong input."""

import json
import re
from collections.abc import Callable

import pytest

from tests.conftest import Done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "folder", "only"], "SRC OUT"),
        (["prepare", "folder", "/no/such", "out"], "does not exist"),
        (
            ["prepare", "folder", "shapes", "out", "--format", "raw", "--short-side-px", "0"],
            "--short-side-px 0: give a whole",
        ),
        (["prepare", "folder", "shapes", "out", "--format", "shards", "--shard-mb", "0"], "--shard-mb 0: give a whole"),
        (["prepare", "folder", "shapes", "out", "--format", "raw", "--workers", "-1"], "--workers -1: give a whole"),
        (["verify", "shapes", "--val-share", "3"], "--val-share 3: give a share"),
        (["verify", "/no/such"], "not a folder|does not exist"),
        (["get", "imagenet"], "Did you mean imagenette"),
        (["get", "cifar10", "--mirror", "example"], "begins with one of https://"),
    ],
)
def test_wrong_input_is_one_clear_message(
    vernier_here: Callable[..., Done], arguments: list[str], message: str
) -> None:
    done = vernier_here("data", *arguments)
    assert done.code == 2
    assert re.search(message, done.err)
    assert "Traceback" not in done.err
    assert json.dumps(done.out) == '""'
