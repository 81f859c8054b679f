"""Write requirements.lock and requirements-dev.lock: every package with the hashes of all its files.

    .venv/bin/python .ci/lock.py           # ask the package index of pip's configuration, and write the files
    .venv/bin/python .ci/lock.py --check   # offline: do the files agree with constraints.txt and pyproject.toml?

The first file has what users need (`make install`), the second what developers need beyond that (`make dev`). Versions
come from constraints.txt, hashes from the index, and which packages are needed from what is installed in this
environment: run it after `make dev`. The hashes are those of all platforms, so they serve all of them. PyTorch is left
out: which build of it a machine needs depends on its devices, and each build has a hash of its own.
"""

import argparse
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

REPO = Path(__file__).resolve().parents[1]
CONSTRAINTS = REPO / "constraints.txt"
USERS, DEVELOPERS = REPO / "requirements.lock", REPO / "requirements-dev.lock"
ROOTS = {USERS: ("vernier", "setuptools"), DEVELOPERS: ("vernier[dev]", "setuptools")}
"""setuptools builds the editable package: without it in the lock, pip would fetch one that nobody checked."""
LEFT_OUT = {"torch", "triton", "vernier"}
MACHINES = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))
PYTHONS = ("3.11", "3.12", "3.13")
HEADS = {
    USERS: "# Made by .ci/lock.py from constraints.txt, for `make install LOCKED=1`. PyTorch is left out: see "
    "docs/install.md.\n",
    DEVELOPERS: "# Made by .ci/lock.py from constraints.txt, for `make dev LOCKED=1`, beside requirements.lock.\n",
}
Packages = dict[str, set[str]]
"""Package -> the markers under which it is needed; an empty one means always."""


def pins() -> dict[str, str]:
    """Package -> version of constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def environments() -> Iterator[dict[str, str]]:
    """The machines that Vernier is installed on, as markers see them."""
    for python in PYTHONS:
        for platform, system, machine in MACHINES:
            yield {
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": platform,
                "platform_system": system,
                "platform_machine": machine,
                "os_name": "posix",
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
            }


def needed() -> dict[Path, Packages]:
    """The packages of each file; what users need is in the first one only."""
    users, everything = (_closure(roots) for roots in ROOTS.values())
    return {USERS: users, DEVELOPERS: {name: m for name, m in everything.items() if name not in users}}


def _closure(roots: tuple[str, ...]) -> Packages:
    packages: Packages = {}
    waiting = [(Requirement(root), "") for root in roots]
    seen: set[tuple[str, str, str]] = set()
    while waiting:
        requirement, marker = waiting.pop()
        name = canonicalize_name(requirement.name)
        packages.setdefault(name, set()).add(marker)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra, marker) in seen:
                continue
            seen.add((name, extra, marker))
            for text in _requirements(name):
                below = Requirement(text)
                truths = [below.marker is None or below.marker.evaluate({**e, "extra": extra}) for e in environments()]
                if any(truths):
                    waiting.append((below, marker if all(truths) else _without_extra(below.marker)))
    return {name: markers for name, markers in packages.items() if name not in LEFT_OUT}


def _requirements(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # needed on another platform only; it has no dependencies that matter here
        return []


def _without_extra(marker: Marker | None) -> str:
    """A marker's conditions on the machine; that on an extra is met."""
    parts = [part.strip() for part in re.split(r"\band\b", str(marker)) if "extra" not in part]
    return " and ".join(parts)


class _Links(HTMLParser):
    """The addresses on a page of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


@cache
def index() -> str:
    """The address of the package index that pip uses here."""
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    if address := os.environ.get("PIP_INDEX_URL") or configured.stdout.strip():
        return address
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


def hashes(name: str, version: str) -> list[str]:
    """The SHA-256 of every file of a release, sorted."""
    address = urljoin(index().rstrip("/") + "/", f"{name}/")
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310  pip's own index
        page = _Links()
        page.feed(answer.read().decode())
    digests = set()
    for link in page.links:
        file, fragment = urldefrag(link)
        if fragment.startswith("sha256=") and _version_of(unquote(urlsplit(file).path.rpartition("/")[2])) == version:
            digests.add(fragment.removeprefix("sha256="))
    if not digests:
        sys.exit(f"{name} {version}: the index has no file of it")
    return sorted(digests)


def _version_of(file: str) -> str:
    try:
        parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
        return str(parse(file)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


def write() -> None:
    versions, files = pins(), needed()
    names = sorted(name for packages in files.values() for name in packages)
    if missing := [name for name in names if name not in versions]:
        sys.exit(f"not in constraints.txt: {', '.join(missing)}")
    with ThreadPoolExecutor(8) as pool:
        digests = dict(zip(names, pool.map(lambda name: hashes(name, versions[name]), names), strict=True))
    for file, packages in files.items():
        entries = [_entry(name, versions[name], packages[name], digests[name]) for name in sorted(packages)]
        file.write_text(HEADS[file] + "".join(entries), encoding="utf-8")


def _entry(name: str, version: str, markers: set[str], digests: list[str]) -> str:
    condition = "" if "" in markers else f" ; {' or '.join(f'({m})' for m in sorted(markers))}"
    return (
        " \\\n".join([f"{name}=={version}{condition}", *(f"    --hash=sha256:{digest}" for digest in digests)]) + "\n"
    )


def locked(file: Path) -> dict[str, tuple[str, list[str]]]:
    """Package -> version and hashes of a lock."""
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {
        canonicalize_name(Requirement(entry.partition("--hash")[0]).name): (
            re.findall(r"==([^\s;]+)", entry)[0],
            re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry),
        )
        for entry in entries
    }


def problems() -> list[str]:
    """Where locks, constraints and requirements disagree."""
    return [problem for file, packages in needed().items() for problem in _problems_of(file, packages)]


def _problems_of(file: Path, packages: Packages) -> list[str]:
    versions, entries = pins(), locked(file)
    return [
        *(f"{name} is needed and not in {file.name}" for name in sorted(packages.keys() - entries.keys())),
        *(f"{name} is in {file.name} and not needed there" for name in sorted(entries.keys() - packages.keys())),
        *(
            f"{name}: {version} in {file.name}, {versions.get(name)} in constraints.txt"
            for name, (version, _) in entries.items()
            if version != versions.get(name)
        ),
        *(f"{name} has no hash in {file.name}" for name, (_, digests) in entries.items() if not digests),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the files, and write nothing")
    if parser.parse_args().check:
        if differences := problems():
            sys.exit("\n".join([*differences, "After a change of constraints.txt: .venv/bin/python .ci/lock.py"]))
    else:
        write()
