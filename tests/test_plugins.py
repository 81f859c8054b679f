"""Plug-ins: loaded from installed packages, a built-in name first, and an error with what would work otherwise."""

from collections.abc import Callable
from numbers import Number
from pathlib import Path

import pytest

from vernier import plugins
from vernier.errors import ConfigError
from vernier.kernels.winograd import Winograd
from vernier.plugins import describe_failures, load_group, load_kinds, load_plugin

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with one entry point of the group `vernier.convolutions`, as pip leaves it in a folder."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, source: str, *, package: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        metadata = tmp_path / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[vernier.convolutions]\n{name} = {package}:PLUGIN\n")

    return write


def load(name: str) -> object:
    return load_plugin("vernier.convolutions", "machine.convolution", name, "torch")


def test_a_plugin_of_another_package_is_loaded(install: Install) -> None:
    install("fast", "PLUGIN = 7", package="fast_convolutions")
    assert load("fast") == 7


def test_a_built_in_name_keeps_its_meaning(install: Install) -> None:
    install("winograd", "PLUGIN = 7", package="a_winograd")
    assert load("winograd") is Winograd


def test_a_plugin_that_nobody_offers_is_named_with_what_would_work() -> None:
    with pytest.raises(ConfigError, match="no installed package offers it") as caught:
        load("fast")
    assert caught.value.given == {"machine.convolution": "fast"}
    assert caught.value.works == [("machine.convolution", "torch")]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_library", "No module named 'no_such_library'"),
        ("OTHER = 7", "has no attribute 'PLUGIN'"),
        ("raise RuntimeError('driver too old\\nand a trace')", r"driver too old\. Use"),
    ],
)
def test_a_plugin_whose_code_fails_is_named_with_the_reason(install: Install, source: str, why: str) -> None:
    install("fast", source, package=f"broken_convolutions_{abs(hash(source))}")
    with pytest.raises(ConfigError, match=why) as caught:
        load("fast")
    assert caught.value.given == {"machine.convolution": "fast"}
    assert caught.value.works == [("machine.convolution", "torch")]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> str:
    """A group whose plug-ins are looked for again."""
    plugins._loaded.cache_clear()
    monkeypatch.setattr(plugins, "_loaded", plugins._loaded.__wrapped__)
    return "vernier.convolutions"


def test_a_group_has_the_plugins_of_its_kind(install: Install, group: str) -> None:
    install("fast", "PLUGIN = 7", package="fast_convolutions")
    install("text", "PLUGIN = 'seven'", package="text_convolutions")
    assert load_group(group, int) == {"fast": 7}
    assert describe_failures(group) == ""


def test_a_plugin_that_fails_leaves_the_others_usable_and_is_named(install: Install, group: str) -> None:
    install("broken", "raise RuntimeError('no driver\\nmore')", package="broken_convolutions")
    install("fast", "PLUGIN = 7", package="fast_convolutions")
    assert load_group(group, int) == {"fast": 7}
    assert describe_failures(group) == " Could not be loaded: broken_convolutions:PLUGIN (no driver)."


def test_kinds_are_the_files_of_a_package_then_plugins_and_a_built_in_name_keeps_its_meaning(
    install: Install, group: str, tmp_path: Path
) -> None:
    """To add one is to add a file."""
    kind = "from numbers import Number\n\nclass {0}(Number):\n    name = '{0}'\n"
    (tmp_path / "own_numbers").mkdir()
    for name in ("__init__", "a", "b"):
        (tmp_path / "own_numbers" / f"{name}.py").write_text("" if name == "__init__" else kind.format(name))
    install("b", f"{kind.format('b')}\nPLUGIN = b", package="other_b")
    install("c", f"{kind.format('c')}\nPLUGIN = c", package="other_c")
    install("d", "PLUGIN = int", package="no_kind")  # of another class: not one of them
    kinds = load_kinds.__wrapped__("own_numbers", group, Number)
    assert {name: each.__module__ for name, each in kinds.items()} == {
        "a": "own_numbers.a",
        "b": "own_numbers.b",
        "c": "other_c",
    }
