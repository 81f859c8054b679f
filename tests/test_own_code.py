"""References to code of users: what they name, what is recorded, and what a wrong one says."""

import sys
from functools import partial
from pathlib import Path

import pytest

from vernier.errors import ConfigError, RunFailed
from vernier.own_code import OwnPart, defined_at, is_of_this_process, is_own, line_of, load_own, refer_to


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a user in the current folder, whose module is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    file = tmp_path / "my_parts.py"
    file.write_text(
        "class Net:\n    def __init__(self, width=8):\n        self.width = width\n"
        "\n\ndef fails():\n    raise KeyError('x')\n"
    )
    return file


@pytest.mark.parametrize("text", ["my_parts:Net", "my_parts.py:Net", "./my_parts.py:Net", "my_parts:Net()"])
def test_a_module_and_a_file_of_the_current_folder_are_found(own_file: Path, text: str) -> None:
    assert is_own(text)
    assert load_own("model.name", text)().width == 8


def test_arguments_are_bound_before_the_object_is_used(own_file: Path) -> None:
    assert load_own("model.name", "my_parts:Net(width=32)")().width == 32
    assert load_own("model.name", "my_parts:Net(16)")().width == 16


@pytest.mark.parametrize(
    "text", ["resnet50", "s3://bucket/folder", "https://host/x", "C:\\photos", "", "/data/set", "a:b:c"]
)
def test_names_folders_and_addresses_are_no_references(text: str) -> None:
    assert not is_own(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nowhere:Net", "no module nowhere"),
        ("missing.py:Net", "no file missing.py"),
        ("my_parts:Nett", "Did you mean Net"),
        ("my_parts:Net(width=open('x'))", "arguments are numbers"),
        ("broken.py:Net", "broken.py, line 2"),
        ("python:Net#99", "only the Python session that made"),
    ],
)
def test_a_wrong_reference_names_what_is_wrong(own_file: Path, text: str, part: str) -> None:
    own_file.with_name("broken.py").write_text("x = 1\nraise ValueError('no')\n")
    with pytest.raises(ConfigError, match=part) as caught:
        load_own("model.name", text)
    assert caught.value.given == {"model.name": text}


def test_the_line_of_an_error_is_the_users(own_file: Path) -> None:
    with pytest.raises(KeyError) as caught:
        load_own("loss.kind", "my_parts:fails")()
    assert line_of(caught.value) == "my_parts.py, line 7"


def test_what_can_be_imported_is_named_so_that_other_processes_can_have_it() -> None:
    assert refer_to(Path) == f"{Path.__module__}:Path"
    assert load_own("model.name", refer_to(Path)) is Path
    assert not is_of_this_process(refer_to(Path))


def test_an_object_of_the_session_is_known_here_only() -> None:
    net = partial(print)
    reference = refer_to(net, "Net")
    assert is_of_this_process(reference)
    assert is_own(reference)
    assert load_own("model.name", reference) is net
    assert refer_to(net) == reference
    assert is_of_this_process(refer_to(lambda: 1))


def test_the_record_changes_with_the_file(own_file: Path) -> None:
    before = OwnPart("model.name", "my_parts.py:Net(width=1)", instantiate=False).describe()
    own_file.write_text(own_file.read_text() + "\n# changed\n")
    after = OwnPart("model.name", "my_parts.py:Net(width=1)", instantiate=False).describe()
    assert before.file == after.file == str(own_file)
    assert before.sha256 != after.sha256


def test_installed_code_is_recorded_with_its_version() -> None:
    assert OwnPart("loss.kind", "torch.nn.functional:mse_loss").describe().package.startswith("torch ")


def test_a_class_is_made_once_and_a_function_is_called_as_it_is(own_file: Path) -> None:
    assert OwnPart("model.name", "my_parts:Net(width=3)").value.width == 3
    part = OwnPart("loss.kind", "my_parts:fails")
    assert defined_at(part.value) == " (my_parts.py, line 6)"
    with pytest.raises(RunFailed, match=r"raised KeyError: 'x' \(my_parts\.py, line 7\)") as caught:
        part()
    assert caught.value.given == {"loss.kind": "my_parts:fails"}
    part.passing = (KeyError,)
    with pytest.raises(KeyError):
        part.run(part.value)
    assert part.wrong("returned 1").message.endswith("(my_parts.py, line 6) returned 1.")
