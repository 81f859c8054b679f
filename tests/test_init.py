"""The front door: what `import vernier` offers, and how little it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import vernier
from vernier.api import training
from vernier.errors import ConfigError


def test_importing_takes_neither_torch_nor_numpy_nor_the_command_line() -> None:
    heavy = "('torch', 'numpy', 'rich', 'pandas', 'PIL', 'typing')"
    code = "import sys; before = set(sys.modules); import vernier; print(len(set(sys.modules) - before), "
    code += f"[m for m in {heavy} if m in sys.modules and m not in before])"
    done = subprocess.run([sys.executable, "-I", "-c", _with_path(code)], capture_output=True, text=True, check=True)
    count, heavy_ones = done.stdout.split(" ", 1)
    assert (int(count) <= 2, heavy_ones.strip()) == (True, "[]"), done.stdout


def _with_path(code: str) -> str:
    return f"import sys; sys.path.insert(0, {str(Path(vernier.__file__).parents[1])!r}); {code}"


def test_every_public_name_is_there_and_listed() -> None:
    assert set(vernier.__all__) <= set(dir(vernier))
    for name in vernier.__all__:
        assert getattr(vernier, name) is not None
    assert vernier.train is training.train
    assert vernier.ConfigError is ConfigError


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        vernier.tran  # noqa: B018


def test_report_is_a_function_though_there_is_a_package_of_its_name(tmp_path: Path) -> None:
    import vernier.report.page.html as inside
    from vernier import report

    assert inside.number(3) == "3"
    assert vernier.report is report
    assert vernier.report.page.html is inside  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"nothing does not exist"):
        vernier.report(tmp_path / "nothing")
