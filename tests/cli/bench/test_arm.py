import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done


@pytest.mark.parametrize(
    ("request_text", "words"),
    [
        ("no JSON", "Cannot read what to measure"),
        (json.dumps({"what": "train", "config": {}, "version": 99}), "has format 99"),
        (json.dumps({"what": "train"}), "has no 'config'"),
    ],
)
def test_a_request_that_cannot_be_read_is_explained(
    vernier_here: Callable[..., Done], tmp_path: Path, request_text: str, words: str
) -> None:
    (tmp_path / "request").write_text(request_text)
    done = vernier_here("bench", "arm", str(tmp_path / "request"), str(tmp_path / "answer"))
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / "answer").exists()
