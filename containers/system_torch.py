"""Make an environment that uses the PyTorch of the Python this is run with, and can never replace it.

    python3 containers/system_torch.py FOLDER
    FOLDER/bin/python -m pip install --constraint FOLDER/constraints.txt ...

`make install SYSTEM_TORCH=1` and the recipes in this folder do this, for images whose vendor built PyTorch for one
device (NVIDIA's NGC, Intel's Gaudi). The environment sees every package of that Python; what it installs itself goes to
FOLDER. constraints.txt there pins PyTorch to the version that is present, and of the versions in Vernier's own
constraints.txt keeps those that the vendor has no other version of.
Needs no package but pip, and not Debian's python3-venv, which vendors' images lack.
"""

import argparse
import site
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where to make the environment; what is there is removed")
    folder = parser.parse_args().folder
    if Path(sys.prefix).resolve() == folder.resolve():
        sys.exit(f"{folder} is active and would be removed by making it again: run `deactivate` first.")
    version = _torch_version()
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--without-pip", "--system-site-packages", str(folder)], check=True
    )
    _share_parent_environment(folder)
    (folder / "constraints.txt").write_text("\n".join(_constraints(version)) + "\n")
    print(f"{folder} uses torch {version} of {metadata.distribution('torch').locate_file('torch')}")


def _torch_version() -> str:
    """The version of PyTorch in this Python; ends the program where there is none that Vernier works with."""
    advice = "make install PYTHON=/path/to/a/python3 SYSTEM_TORCH=1 names another Python; make install SYSTEM_TORCH=0 "
    advice += "installs a PyTorch into .venv."
    try:
        from pip._vendor.packaging.requirements import Requirement
    except ImportError:
        sys.exit(f"{sys.executable} has no pip: python3 -m ensurepip, or apt-get install python3-pip, adds it.")
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        sys.exit(f"SYSTEM_TORCH=1 uses the PyTorch that is installed, and {sys.executable} has none. {advice}")
    with (ROOT / "pyproject.toml").open("rb") as file:
        requirements = map(Requirement, tomllib.load(file)["project"]["dependencies"])
    specifier = next(r.specifier for r in requirements if r.name == "torch")
    if not specifier.contains(version, prereleases=True):
        sys.exit(f"{sys.executable} has torch {version}, and Vernier needs torch {specifier}. {advice}")
    return version


def _constraints(torch_version: str) -> list[str]:
    """PyTorch as it is, and Vernier's exact versions of packages that this Python does not have."""
    present = {_normalized(name) for d in metadata.distributions() if (name := d.metadata["Name"])}
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return [f"torch=={torch_version}", *(pin for pin in pins if _normalized(pin.split("==")[0]) not in present)]


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _share_parent_environment(folder: Path) -> None:
    """An environment made from another one sees that one's base only: a line in a .pth file adds its packages."""
    if sys.prefix == sys.base_prefix:
        return
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "system_torch.pth").write_text("\n".join(site.getsitepackages()) + "\n")


if __name__ == "__main__":
    main()
