"""Outside packages with plug-ins, as pip leaves them in a folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vernier import plugins

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install("carbon", SOURCE, group="carbon:PLUGIN")`: a package with one entry point `carbon` in each group."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    plugins._loaded.cache_clear()
    monkeypatch.setattr(plugins, "_loaded", plugins._loaded.__wrapped__)  # plug-ins are looked for again

    def write(package: str, source: str, **groups: str) -> None:
        (folder / f"{package}.py").write_text(source)
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        entries = [f"[vernier.{group}]\n{package} = {package}:{name}\n" for group, name in groups.items()]
        (metadata / "entry_points.txt").write_text("".join(entries))

    return write
