"""Functions of Python made from requests."""

import inspect

import pytest

from vernier.api.functions import _annotation_of, _bind, _docstring_of, _options_in_python, function
from vernier.api.session import Session
from vernier.errors import ConfigError, RunFailed
from vernier.references import given, use
from vernier.requests.declaring import Request, argument, option, option_of, request
from vernier.requests.values import Assignments, Duration, Fraction


@request("tool")
class Tool(Request):
    """Do something."""

    recipe: str | None = argument(None, help="Recipe.")
    batch: tuple[int, ...] = option((), help="Batch sizes.")
    time: Duration = option("10m", help="Time.", names=("--minutes",), bare="m")
    tolerance: Fraction = option("1%", help="Tolerance.")
    out: str = option("runs", help="Folder.", names=("--output",))
    device: str | None = option(None, help="Device.", sets="machine.device")
    settings: Assignments = option((), help="Settings.")
    quiet: bool = option(False, help="Quiet.")
    json: bool = option(False, help="JSON.", edge="shell")


def _perform(made: Tool, session: Session) -> tuple[Tool, bool]:
    if made.recipe == "bad":
        raise ConfigError(f"{given('recipe', 'bad')} is bad. Use {use('out', 'x')} or {use('optim.lr', 1)}.")
    if made.recipe == "failing":
        raise RunFailed("It failed.")
    return made, session.quiet


tool = function(Tool, _perform, "tool")


def test_a_call_is_a_request() -> None:
    made, quiet = tool("r", batch=8, tolerance=0.05, device="gpu", settings={"optim.lr": 0.1}, quiet=True)
    assert made == Tool(recipe="r", batch=(8,), tolerance="5%", device="cuda", settings=("optim.lr=0.1",), quiet=True)
    assert quiet


def test_the_signature_has_values_and_no_options_of_the_shell() -> None:
    parameters = inspect.signature(tool).parameters
    assert parameters["time"].default == "10m"
    assert parameters["settings"].default is None
    assert "json" not in parameters
    assert "quiet: Quiet." in str(tool.__doc__)
    assert tool.__name__ == "tool"
    assert next(each.name for each in _options_in_python(Tool)) == "recipe"


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("recipe", "str | None"),
        ("batch", "int | Sequence[int]"),
        ("tolerance", "float | str"),
        ("settings", "Mapping[str, object] | None"),
    ],
)
def test_annotations_say_what_python_takes(name: str, annotation: str) -> None:
    each = option_of(Tool, name)
    assert each is not None
    assert _annotation_of(each) == annotation


def test_errors_are_in_the_words_of_python_and_without_inner_frames() -> None:
    with pytest.raises(ConfigError) as refused:
        tool("bad")
    assert str(refused.value) == 'recipe="bad" is bad. Use out="x" or settings={"optim.lr": 1}.'
    assert refused.value.given == {"recipe": "bad"}
    frames = [entry.name for entry in refused.traceback]
    assert "_perform" not in frames
    with pytest.raises(RunFailed):
        tool("failing")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"output": "x"}, "It is called out here"),
        ({"momentum": 0.9}, 'settings={"optim.momentum": VALUE}'),
        ({"tolerence": 1}, "Did you mean tolerance"),
        ({"json": True}, "has no option 'json'"),
    ],
)
def test_an_argument_that_does_not_exist_is_explained(options: dict[str, object], hint: str) -> None:
    with pytest.raises(ConfigError, match="tool") as refused:
        tool(**options)
    assert hint in str(refused.value)


def test_an_old_name_with_a_number_works_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="time='5m'"):
        made, _ = tool(minutes=5)
    assert made.time == "5m"


def test_arguments_by_position_are_counted() -> None:
    with pytest.raises(ConfigError):
        tool("a", "b")
    with pytest.raises(ConfigError):
        tool("a", recipe="b")
    assert _bind(Tool, "tool", ("a",), {}).recipe == "a"
    assert _docstring_of(Tool).startswith("Do something.")
