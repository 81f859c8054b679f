"""Shared fixtures: small real data sets, the real-data folder, and a way to run the command line as a person would."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is imported

import hypothesis
import pytest

from vernier.cli import main
from vernier.data.shapes import ShapesSpec, make_shapes

# How long an example takes is the machine's business. The same examples each time, so that a change is what made a test
# fail; `pytest --hypothesis-profile search` looks for new ones.
hypothesis.settings.register_profile("vernier", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, derandomize=False)
hypothesis.settings.load_profile("vernier")
# A shell ignores SIGINT in background jobs, and nohup ignores SIGHUP; what is ignored stays so in child processes.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
REPO = Path(__file__).resolve().parents[1]
pytest_plugins = ("tests.rgpu", "tests.bench_requests", "tests.own_parts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that drive the command line start processes and train: all of them are slow."""
    folders = {REPO / "tests" / "integration", REPO / "tests" / "device_suite"}
    for item in items:
        if folders & set(item.path.parents):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def vernier_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built-in data is made in a folder of the test run, never in the user's cache."""
    home = tmp_path_factory.mktemp("vernier-home")
    os.environ["VERNIER_HOME"] = str(home)
    # In /tmp, a process that was killed while it compiled leaves files that fail to load in later ones.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home / "inductor"))
    return home


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shapes set: 160 training and 50 validation JPEGs of 32 pixels."""
    return make_shapes(tmp_path_factory.mktemp("data") / "shapes", ShapesSpec(train=160, val=50, size_px=32, seed=3))


def _real_data() -> Path:
    return Path(os.environ.get("VERNIER_TEST_DATA") or REPO.parent / "shared" / "data")


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """`real_data("fashion-mnist")`: a folder of real data, or skip with the reason."""

    def find(name: str) -> Path:
        path = _real_data() / name
        if not path.exists():
            pytest.skip(f"real data {path} is not here (set VERNIER_TEST_DATA)")
        return path

    return find


@dataclass
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


TINY = [
    "--model",
    "resnet8-small",
    "--global-batch",
    "16",
    "--set",
    "model.width=8",
    "--set",
    "model.stem=small",
    "--set",
    "data.image_px=32",
    "--set",
    "data.eval_px=32",
    "--set",
    "data.eval_short_side_px=32",
    "--set",
    "machine.threads=1",
    "--set",
    "machine.eval_batch=16",
]


@pytest.fixture
def tiny(shapes: Path, tmp_path: Path) -> list[str]:
    """Arguments of a training that takes a second: append to `vernier train`."""
    return ["--data", str(shapes), "--out", str(tmp_path / "runs"), *TINY]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "vernier", *arguments]


@pytest.fixture
def vernier(tmp_path: Path) -> Callable[..., Done]:
    """Run a command in a process of its own."""

    def run(*arguments: str, cwd: Path | None = None, timeout: float = 300, env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            cwd=cwd or tmp_path,
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def vernier_here(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process, for what needs no process of its own: no second import of torch."""

    def run(*arguments: str) -> Done:
        try:
            code = main(list(arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def only_run(out: Path) -> Path:
    """The single run directory under `out`."""
    (run,) = [p for p in out.iterdir() if p.is_dir()]
    return run


def load_benchmark(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    label = f"benchmark_{name.replace('/', '_')}"
    spec = importlib.util.spec_from_file_location(label, REPO / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if (folder := str(REPO / "benchmarks")) not in sys.path:  # they import each other
        sys.path.append(folder)
    spec.loader.exec_module(module)
    return module
