"""Build the recipes of containers/ and run them, on stand-ins for their base images: `make containers`.

The real base images need a registry and, for the vendors, tens of GB. A stand-in is a Debian with Python under the
image's name; for the vendors' recipes it has a PyTorch, an older NumPy and a PIP_CONSTRAINT, as theirs do. Checked is
that each recipe's commands run, that Vernier trains in the result, and that nothing of a vendor's base was changed.

Needs root, and Debian's `buildah` and `debootstrap`, which need no container engine. BUILDAH_ARGS are added to every
step, for machines that reach PyPI in a way of their own (such as --volume /etc/pip.conf:/etc/pip.conf:ro).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "containers"
PLAIN = "docker.io/library/python:3.11-slim"
EXTRA = shlex.split(os.environ.get("BUILDAH_ARGS", ""))
VENDORS_PYTHON = "/usr/local/lib/python3.11/dist-packages"
USE = "vernier --version && vernier doctor && vernier train --smoke --out /tmp/runs && vernier eval /tmp/runs/*"


def main() -> None:
    names = sys.argv[1:] or sorted(p.name for p in RECIPES.iterdir() if p.suffix != ".py")
    if missing := [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]:
        sys.exit(f"not installed: {' '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    os.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    _make_plain_base()
    for name in names:
        recipe = RECIPES / name
        print(f"== {name}", flush=True)
        if recipe.suffix == ".def":
            _try_definition(recipe)
        else:
            _try_dockerfile(recipe)
    print(f"built and run: {', '.join(names)}")


def _make_plain_base() -> None:
    """python:3.11-slim: Debian 12 with its Python 3.11."""
    if _buildah("images", "--quiet", "--filter", f"reference={PLAIN}", capture=True):
        return
    with tempfile.TemporaryDirectory() as scratch:
        packages = "--include=ca-certificates,python3,python3-pip,python3-dev"
        subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", f"{scratch}/root"], check=True)
        Path(scratch, "root/usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
        Path(scratch, "Dockerfile").write_text("FROM scratch\nADD root /\nENV DEBIAN_FRONTEND=noninteractive\n")
        _buildah("build", "--tag", PLAIN, scratch)


def _make_vendor_base(name: str) -> None:
    """A vendor's image: PyTorch in the system's Python, no python3-venv, every package pinned for pip."""
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    steps = [
        f"FROM {PLAIN}",
        f"RUN pip install --no-cache-dir {torch} numpy==1.26.4 pillow==11.0.0",
        "RUN mkdir -p /etc/pip && pip freeze > /etc/pip/constraint.txt",
        "ENV PIP_CONSTRAINT=/etc/pip/constraint.txt",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "Dockerfile").write_text("\n".join(steps))
        _buildah("build", *EXTRA, "--tag", name, scratch)


def _try_dockerfile(recipe: Path) -> None:
    text = recipe.read_text()
    base = re.search(r"^ARG BASE=(\S+)", text, re.MULTILINE)
    if base:
        _make_vendor_base(base[1])
    image = f"vernier-try-{recipe.suffix.strip('.') or 'plain'}"
    _buildah("build", *EXTRA, "--pull-never", "--file", str(recipe), "--tag", image, str(ROOT))
    before = _vendor_files(base[1]) if base else ""
    _run_in(image, USE)
    if base and _vendor_files(image) != before:
        sys.exit(f"{recipe.name} changed {VENDORS_PYTHON} of its base")
    _buildah("rmi", "--force", image, *([base[1]] if base else []))


def _try_definition(recipe: Path) -> None:
    """Apptainer's sections, in its order: %files, %post, %environment, then %test and %runscript."""
    header, *parts = re.split(r"^%(\w+)\n", recipe.read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if f"From: {PLAIN.removeprefix('docker.io/library/')}\n" not in header:
        sys.exit(f"there is no stand-in for the base of {recipe.name}")
    container = _buildah("from", "--pull-never", PLAIN, capture=True)
    for line in sections["files"].splitlines():
        if line.strip():
            source, target = line.split()
            _buildah("copy", container, str(ROOT / source), target)
    inside = [*EXTRA_FOR_RUN, container, "--", "/bin/sh", "-ec"]
    _buildah("run", *inside, sections["post"])
    _buildah("run", *inside, sections["environment"] + sections["test"])
    for words in ("--version", "train --smoke --out /tmp/runs"):
        _buildah("run", *inside, f"{sections['environment']}\nset -- {words}\n{sections['runscript']}")
    _buildah("rm", container)


EXTRA_FOR_RUN = [word for word in EXTRA if not word.startswith("--build-arg")]


def _run_in(image: str, command: str) -> None:
    container = _buildah("from", "--pull-never", image, capture=True)
    _buildah("run", container, "--", "/bin/sh", "-ec", command)
    _buildah("rm", container)


def _vendor_files(image: str) -> str:
    """Hashes of everything in the vendor's Python, bytecode left out."""
    container = _buildah("from", "--pull-never", image, capture=True)
    listing = f"find {VENDORS_PYTHON} -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum"
    hashes = _buildah("run", container, "--", "/bin/sh", "-ec", listing, capture=True)
    _buildah("rm", container)
    assert "/torch/__init__.py" in hashes
    return hashes


def _buildah(*words: str, capture: bool = False) -> str:
    done = subprocess.run(["buildah", *words], check=False, text=True, stdout=subprocess.PIPE if capture else None)
    if done.returncode:
        sys.exit(f"buildah {shlex.join(words)[:200]} failed with {done.returncode}")
    return (done.stdout or "").strip()


if __name__ == "__main__":
    main()
