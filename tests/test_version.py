"""The version as it is shown and recorded: a development version has its commit, a release does not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vernier import version
from vernier.version import describe_version, source_commit


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    source_commit.cache_clear()
    yield
    source_commit.cache_clear()


def _git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *own, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in place of Vernier's own."""
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-q", "-m", "First")
    monkeypatch.setattr(version, "REPOSITORY", tmp_path)
    monkeypatch.setattr(version, "__version__", "0.4.0.dev0")
    return tmp_path


def test_a_development_version_is_shown_with_its_commit(checkout: Path) -> None:
    commit = _git(checkout, "rev-parse", "--short", "HEAD")
    assert describe_version() == f"0.4.0.dev0 ({commit})"


def test_modified_source_is_shown_as_such(checkout: Path) -> None:
    commit = _git(checkout, "rev-parse", "--short", "HEAD")
    (checkout / "file").write_text("two")
    assert describe_version() == f"0.4.0.dev0 ({commit}, modified)"


def test_a_tag_does_not_replace_the_commit(checkout: Path) -> None:
    _git(checkout, "tag", "-a", "v0.3.0", "-m", "Vernier 0.3.0")
    assert source_commit() == _git(checkout, "rev-parse", "--short", "HEAD")


def test_a_release_is_shown_as_it_is_and_runs_no_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__version__", "0.3.0")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert describe_version() == "0.3.0"


@pytest.mark.parametrize("problem", ["no checkout", "no git"])
def test_a_development_version_without_a_commit_is_still_shown(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if problem == "no checkout":
        monkeypatch.setattr(version, "REPOSITORY", elsewhere)
    else:
        monkeypatch.setenv("PATH", str(elsewhere))
    assert describe_version() == "0.4.0.dev0"


def test_the_module_does_not_import_what_starts_processes() -> None:
    program = "import sys, vernier.version; sys.exit('subprocess' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
