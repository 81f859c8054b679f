"""Requests that cross to other processes."""

import json
from pathlib import Path

import pytest

from vernier.api.crossing import FLAG, _request_file, read_request
from vernier.api.session import Session
from vernier.api.wording import PythonWords
from vernier.cli.wording import ShellWords
from vernier.errors import ConfigError
from vernier.lab.requests.comparing import Convert

MADE = Convert(run="runs/a", to="mllog", out="x")


def test_a_request_is_the_same_on_the_other_side() -> None:
    session = Session(ShellWords(Convert, MADE, {"out": "-o"}))
    with _request_file(MADE, session, json=True) as words:
        assert words[:2] == ["convert", FLAG]
        assert read_request(Convert, Path(words[2])) == (
            Convert(run="runs/a", to="mllog", out="x", json=True),
            False,
            {"out": "-o"},
        )
    assert not Path(words[2]).exists()


def test_a_request_of_python_is_marked() -> None:
    with _request_file(MADE, Session(PythonWords(Convert, MADE))) as words:
        assert read_request(Convert, Path(words[2]))[1]


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"request": {}, "python": False, "typed": {}})])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_request(Convert, file)
    with pytest.raises(ConfigError):
        read_request(Convert, tmp_path / "missing.json")
