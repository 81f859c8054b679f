"""The documentation stays true: the site builds without a warning, links and anchors lead somewhere, commands exist."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPO
from tests.documented import DOCS, Fence, Shown, commands, configured, fences, parsed
from vernier.devices import Device
from vernier.models.contract import Family
from vernier.requests.registry import OTHER_NAMES, SECTIONS

PAGES = [*sorted(DOCS.rglob("*.md")), REPO / "README.md", REPO / "CONTRIBUTING.md"]
WIDEST = 100
"""Characters of a command: more than a box holds on a narrow desktop is cut off, or has to be scrolled."""
WITH_LONG_COMMANDS = ("coming-from-", "reliability")
"""Pages with the command lines of other systems, and of clusters."""


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every relative link and anchor resolves, and nothing is fetched from elsewhere."""
    pytest.importorskip("zensical", reason="needs vernier[docs]")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(REPO / "mkdocs.yml", tmp_path)
    (tmp_path / "src").symlink_to(REPO / "src")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    made = [path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(made) >= len(PAGES) - 2
    assert not re.findall(r"<(?:link|script|img)[^>]+(?:href|src)=\"?https?://[^>]*", "".join(made))


def _entries(nav: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in _entries(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    entries = Counter(_entries(yaml.safe_load((REPO / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert entries == Counter(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_picture_exists(page: Path) -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in pictures if not (page.parent / name).is_file()] == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES[:-2] if not p.stem.startswith(WITH_LONG_COMMANDS)], ids=lambda p: p.stem
)
def test_commands_fit_into_their_boxes(page: Path) -> None:
    """Comments behind commands ran out of them."""
    blocks = (fence for fence in fences(page) if fence.language == "sh")
    long = [line for fence in blocks for line in fence.text.splitlines() if len(line) > WIDEST]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_command_of_a_page_is_known(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [f for f in fences(page) if f not in _refused(page) and f.language not in ("text", "python")]
    wrong = [f"{shown}: {why}" for fence in blocks for shown in commands(fence) if (why := _wrong_with(shown))]
    assert wrong == [], capsys.readouterr().err


def _refused(page: Path) -> list[Fence]:
    """The blocks whose commands are wrong on purpose: what they print is shown, and begins with the refusal."""
    return [block for block, output in pairwise(fences(page)) if output.text.startswith("vernier: ")]


def _wrong_with(shown: Shown) -> str:
    if shown.words[0] in ("--help", "--version") or shown.words[1:] == ("--help",):
        return ""
    try:
        parsed(shown.words)
        configured(shown.words)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_named_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"`vernier ([a-z]+)\b", page.read_text(encoding="utf-8"))
    own = {name for section in SECTIONS.values() for name in section}
    assert set(named) <= {*own, *OTHER_NAMES, "help", "version"}


def test_a_misspelt_command_flag_recipe_or_setting_would_be_found() -> None:
    page = DOCS / "none.md"
    for line, why in {
        "trian": "has no command",
        "train --epoch-s 3": "Unknown flag",
        "train shapes-quik": "There is no recipe",
        "train --set optim.lrr=1": "Unknown setting",
        "data mke": "has no action",
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


def test_the_picture_of_the_architecture_has_every_package() -> None:
    picture = (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (REPO / "src" / "vernier").glob("*/__init__.py")}
    assert {name for name in packages if f">{name}<" not in picture} == set()


def test_the_walks_of_the_architecture_page_are_short() -> None:
    walks = re.split(r"^## One ", (DOCS / "architecture.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    assert len(walks) == 4
    assert all(len(re.findall(r"^\d+\. ", walk, flags=re.M)) <= 8 for walk in walks)


def test_the_device_that_is_shown_is_the_one_that_is_tested() -> None:
    page = (DOCS / "add-a-device.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "vernier_rgpu.py"):
        assert (REPO / "tests" / "rgpu_plugin" / name).read_text(encoding="utf-8").rstrip() in page, name


def test_the_model_that_is_shown_is_the_one_that_is_tested() -> None:
    page = (DOCS / "add-a-model.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "vernier_plain.py"):
        assert (REPO / "tests" / "model_plugin" / name).read_text(encoding="utf-8").rstrip() in page, name
    assert {field.name for field in fields(Family)} <= set(re.findall(r"`(\w+)`", page))


def test_the_contract_of_a_device_is_documented_in_full() -> None:
    page = (DOCS / "add-a-device.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)(?:\([^`)]*\))?`", page))
    internal = {"refuse", "fuses_optimizer", "without_gradients"}  # follow from the others
    assert {name for name in dir(Device) if not name.startswith("_")} | {
        "name",
        "backend",
    } - internal <= documented | internal
