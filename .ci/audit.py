"""Look up known vulnerabilities of the packages in constraints.txt with pip-audit. Exit code 1 where there are some.

Without a network, or where the service does not know a package, nothing can be said about it: that is one line, and no
failure. Lists that cannot be read are never taken for "no vulnerabilities".
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
LIMIT_S = 300


def audit(folder: Path) -> str:
    """What pip-audit prints, as JSON; empty where it could not be installed or ended without an answer."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    flags = ["--requirement", "constraints.txt", "--no-deps", "--disable-pip", "--format", "json", "--timeout", "20"]
    try:
        subprocess.run([*pip, "pip-audit"], check=True, capture_output=True, timeout=LIMIT_S)
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", *flags, "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": str(folder)},
            timeout=LIMIT_S,
        )
    except (subprocess.SubprocessError, OSError):
        return ""
    return done.stdout


def describe(answer: str) -> tuple[list[str], int]:
    """Lines about pip-audit's answer, and the exit code."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    checked = [package for package in packages if "vulns" in package]
    if not checked:
        return ["vulnerabilities were not checked: pip-audit or its service cannot be reached"], 0
    lines = [
        f"{package['name']} {package['version']}: {flaw['id']}, repaired in {', '.join(flaw['fix_versions']) or 'none'}"
        for package in checked
        for flaw in package["vulns"]
    ]
    flawed = sum(bool(package["vulns"]) for package in checked)
    return [*lines, f"vulnerabilities: {flawed} of {len(checked)} packages checked; {len(packages)} are pinned"], bool(
        lines
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        lines, code = describe(audit(Path(scratch)))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(code)
