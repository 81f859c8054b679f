"""Choosing a device, devices of other packages, and the matrix of what devices can do."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done
from vernier import devices
from vernier.devices import describe_lost_device, kinds, matrix, refuse_early, resolve, unusable_plugins, usable
from vernier.errors import ConfigError

WORKING = """
from vernier.devices.cpu import Cpu
class Fast(Cpu):
    name = "fast"
"""

PlugIn = Callable[..., None]


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlugIn]:
    """Installs packages with an entry point of the group `vernier.devices`, as pip leaves them in a folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def install(name: str, source: str, *, target: str = "Fast", package: str = "") -> None:
        module = package or f"vernier_{name}"
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[vernier.devices]\n{name} = {module}:{target}\n")
        devices._discover.cache_clear()

    yield install
    devices._discover.cache_clear()
    for module in set(sys.modules) - modules:
        if module.startswith("vernier_"):
            del sys.modules[module]


def test_the_matrix_covers_every_combination_once() -> None:
    rows = matrix()
    assert len({(r.device, r.precision, r.mode) for r in rows}) == len(rows) == len(kinds()) * 4 * 3


def test_auto_takes_an_accelerator_before_the_cpu(mps: Any) -> None:
    assert resolve("auto").name == "mps"
    assert [d.name for d in usable()][-1] == "cpu"


def test_a_device_that_is_not_here_is_named_with_those_that_are() -> None:
    absent = next(name for name, kind in kinds().items() if not kind.available())
    with pytest.raises(ConfigError, match=r"Usable: .*cpu"):
        resolve(absent)


def test_a_device_of_another_package_comes_before_the_cpu_and_after_the_built_in_ones(plug_in: PlugIn) -> None:
    plug_in("zebra", WORKING.replace("fast", "zebra"))
    plug_in("fast", WORKING)
    order = [name for name in kinds() if name in ("cuda", "hpu", "xpu", "mps", "fast", "zebra", "cpu")]
    assert order == ["cuda", "hpu", "xpu", "mps", "fast", "zebra", "cpu"]
    assert resolve("fast").name == "fast"
    assert resolve("auto").name != "cpu"


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("import no_such_library", "Fast", "No module named 'no_such_library'"),
        (WORKING, "Slow", "has no attribute 'Slow'"),
        ("class Fast: name = 'fast'", "Fast", "not a class derived from vernier.devices.base.Device"),
        (WORKING.replace('"fast"', '"faster"'), "Fast", "its `name` is 'faster', not 'fast'"),
        ("raise RuntimeError('driver too old\\nand a trace')", "Fast", "driver too old"),
        (WORKING + "    @classmethod\n    def available(cls): raise OSError('no driver')", "Fast", "no driver"),
    ],
)
def test_a_broken_plug_in_leaves_others_usable_and_is_explained(
    plug_in: PlugIn, vernier_here: Callable[..., Done], source: str, target: str, why: str
) -> None:
    plug_in("fast", source, target=target)
    assert resolve("cpu").name == "cpu"
    assert "cpu" in [device.name for device in usable()]
    with pytest.raises(ConfigError) as refused:
        resolve("fast")
    assert refused.value.given == {"machine.device": "fast"}
    assert why in str(refused.value)
    assert "Usable: " in str(refused.value)
    assert "vernier_fast" in str(refused.value)
    assert why in vernier_here("doctor").out
    refuse_early("fast", "fp32", "eager", allow_slow=False)  # the set-up says why, with the whole reason
    for absent in (name for name in ("hpu", "cuda") if not kinds()[name].available()):
        refuse_early(absent, "fp32", "eager", allow_slow=False)  # it does not know whether `fast` is usable
        with pytest.raises(ConfigError, match=r"Usable: (?!.*fast)"):
            resolve(absent)


def test_a_plug_in_cannot_take_the_name_of_a_built_in_device(plug_in: PlugIn) -> None:
    plug_in("cuda", WORKING.replace("fast", "cuda"))
    assert kinds()["cuda"].__module__ == "vernier.devices.cuda"
    assert "the name cuda is taken" in unusable_plugins()["cuda"]
    assert "vernier_cuda" in unusable_plugins()["cuda"]


def test_a_vendors_package_that_does_not_fit_this_pytorch_leaves_others_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaudi's package ends with an AssertionError when it is imported with another release of PyTorch."""
    package = tmp_path / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("assert False, 'PyTorch version 2.9 differs from run-time 2.13'")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "hpu" not in [device.name for device in usable()]
        assert resolve("auto").name
        with pytest.raises(ConfigError, match=r"differs from run-time 2.13\. Usable: .*cpu") as refused:
            resolve("hpu")
        assert refused.value.given == {"machine.device": "hpu"}
    finally:
        sys.modules.pop("habana_frameworks", None)  # its folder is gone after this test


@pytest.mark.parametrize(("name", "meant"), [("cdua", "cuda"), ("fas", "fast")])
def test_an_unknown_name_is_answered_with_what_was_meant(plug_in: PlugIn, name: str, meant: str) -> None:
    plug_in("fast", WORKING)
    for refuse in (resolve, lambda name: refuse_early(name, "fp32", "eager", allow_slow=False)):
        with pytest.raises(ConfigError, match="is not known") as refused:
            refuse(name)
        assert refused.value.given == {"machine.device": name}
        assert meant in str(refused.value)


def test_help_loads_neither_plug_ins_nor_pytorch(plug_in: PlugIn, tmp_path: Path) -> None:
    plug_in("fast", "raise SystemExit('a plug-in was loaded')")
    for command in ([], ["train"]):
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['vernier', *{command!r}, '--help']\n"
            "from vernier.cli import main\n"
            "try: main()\n"
            "finally: assert 'torch' not in sys.modules and 'vernier_fast' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage" in done.stdout.lower()


def test_a_device_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_lost_device(ConnectionError("gone")) == ""
    monkeypatch.setattr(kinds()["cpu"], "is_lost", classmethod(lambda cls, error: isinstance(error, ConnectionError)))
    assert describe_lost_device(ConnectionError("gone\nmore")) == "The device cpu does not answer: gone"
    assert describe_lost_device(ConnectionResetError()) == "The device cpu does not answer: ConnectionResetError"
    assert describe_lost_device(ValueError("gone")) == ""
