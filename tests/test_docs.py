"""The documentation stays true: the site builds without a warning, links and anchors lead somewhere, commands exist."""

import ast
import logging
import re
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.documented import DOCS, Shown, commands, configured, fences, function_of, parsed
from vernier.cli import COMMANDS, GROUPS
from vernier.devices import Device

PAGES = [*sorted(DOCS.glob("*.md")), REPO / "README.md", REPO / "CONTRIBUTING.md"]


def test_the_site_builds_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every page is in the navigation and every entry of it exists; every relative link and anchor resolves."""
    pytest.importorskip("material", reason="needs vernier[docs]")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(REPO / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(config)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
    made = (tmp_path / "site" / "index.html").read_text()
    assert not re.findall(r"<(?:link|script|img)[^>]+(?:href|src)=\"?https?://[^>]*", made)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_command_of_a_page_is_known(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [f"{shown}: {why}" for fence in fences(page) for shown in commands(fence) if (why := _wrong_with(shown))]
    assert wrong == [], capsys.readouterr().err


def _wrong_with(shown: Shown) -> str:
    if shown.words[0] in ("--help", "--version") or shown.words[1:] == ("--help",):
        return ""
    if function_of(shown.words) is None:
        return "no such command"
    try:
        parsed(shown.words)
        configured(shown.words)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_named_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"`vernier ([a-z]+)\b", page.read_text(encoding="utf-8"))
    assert set(named) <= {*COMMANDS, *GROUPS, "help", "version"}


def test_a_misspelt_command_flag_recipe_or_setting_would_be_found() -> None:
    page = DOCS / "none.md"
    for line, why in {
        "trian": "no such command",
        "train --epoch-s 3": "Unknown flag",
        "train shapes-quik": "There is no recipe",
        "train --set optim.lrr=1": "Unknown setting",
        "data mke": "no such command",
    }.items():
        assert why in _wrong_with(Shown(page, 1, tuple(line.split()))), line
    assert _wrong_with(Shown(page, 1, ("train", "RECIPE", "--set", "optim.lr=0.1"))) == ""


def test_links_of_pages_outside_the_site_resolve() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES[-2:]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def _defined_names(path: Path) -> set[str]:
    """Functions, classes, and methods as Class.method, that a module defines."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


def test_every_file_and_function_of_the_architecture_page_exists() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", text)
    assert len(named) > 30
    wrong = [
        f"{file}:{name}"
        for file, name in named
        if not (path := REPO / "src" / "vernier" / file).is_file() or (name and name not in _defined_names(path))
    ]
    assert wrong == []


def test_the_walks_of_the_architecture_page_are_short() -> None:
    walks = re.split(r"^## One ", (DOCS / "architecture.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    assert len(walks) == 4
    assert all(len(re.findall(r"^\d+\. ", walk, flags=re.M)) <= 8 for walk in walks)


def test_the_device_that_is_shown_is_the_one_that_is_tested() -> None:
    page = (DOCS / "add-a-device.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "vernier_rgpu.py"):
        assert (REPO / "tests" / "rgpu_plugin" / name).read_text(encoding="utf-8").rstrip() in page, name


def test_the_contract_of_a_device_is_documented_in_full() -> None:
    page = (DOCS / "add-a-device.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)(?:\([^`)]*\))?`", page))
    internal = {"refuse", "fuses_optimizer", "without_gradients"}  # follow from the others
    assert {name for name in dir(Device) if not name.startswith("_")} | {
        "name",
        "backend",
    } - internal <= documented | internal
