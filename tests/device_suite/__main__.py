"""`python -m tests.device_suite DEVICE [REPORT]`: run the suite on a device of this machine, and write a report.

The report is one Markdown page for a person who sends it back to us: the machine, the versions, and each test with its
outcome, seconds and the reason of a skip or a failure. `make test-device DEVICE=cuda` starts it.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPO, command
from tests.rgpu import RgpuServer, why_absent
from vernier.devices import resolve
from vernier.errors import ConfigError

LONGEST_REASON = 4000


@dataclass
class Results:
    """A plug-in of pytest that collects outcomes in order."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "reason": ""})
        row["seconds"] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            row["outcome"], row["reason"] = "skipped", report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            row["outcome"], row["reason"] = "FAILED", report.longreprtext[-LONGEST_REASON:]


def main(device: str, report: Path) -> int:
    """Run the suite; the exit code is pytest's, or 2 for a device that is not here."""
    environment = dict(os.environ)
    if device == "rgpu":
        if why := why_absent():
            return refuse(why)
        server = RgpuServer()
        environment = server.environment
        examination = examine(environment)
        server.stop()
    else:
        try:
            device = resolve(device).name
        except ConfigError as error:
            return refuse(str(error).replace("--device", "DEVICE"))
        examination = examine(environment)
    os.environ["VERNIER_TEST_DEVICE"] = device
    results, began = Results(), datetime.now(UTC)
    code = pytest.main(["-v", "-p", "no:cacheprovider", str(Path(__file__).parent)], plugins=[results])
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n".join(lines(device, examination, results, began)) + "\n", encoding="utf-8")
    print(f"report     {report}: send it back to us")
    return int(code)


def refuse(why: str) -> int:
    sys.stderr.write(f"test-device: {why}\n")
    return 2


def examine(environment: dict[str, str]) -> dict[str, Any]:
    """What `vernier doctor` says about the machine."""
    done = subprocess.run(command("doctor", "--json"), capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"test-device: vernier doctor failed: {done.stderr}")
    return dict(json.loads(done.stdout))


def lines(device: str, examination: dict[str, Any], results: Results, began: datetime) -> list[str]:
    """The page."""
    machine = examination["machine"]
    devices = [d for d in examination["devices"] if d["device"] == device]
    outcomes = [row["outcome"] for row in results.rows.values()]
    described = [f"{d['index']}: {d['name']}, {d['uuid'] or 'no UUID'}" for d in devices]
    minutes = sum(row["seconds"] for row in results.rows.values()) / 60
    counted = ", ".join(f"{outcomes.count(name)} {name}" for name in ("passed", "skipped", "FAILED"))
    page = [
        f"# Device suite on {device}: {counted}",
        "",
        f"- began {began:%Y-%m-%d %H:%M} UTC, {minutes:.1f} minutes of tests; commit {commit()}",
        f"- machine: {machine['host']}, {machine['system']}, {machine['cores']} cores",
        f"- processor: {', '.join(machine['instructions']) or 'instruction sets unknown'}",
        f"- NVIDIA driver: {machine['nvidia_driver'] or 'none'}",
        f"- devices: {'; '.join(described)}",
        f"- versions: {', '.join(f'{name} {v}' for name, v in examination['versions'].items() if v)}",
        "",
        "| test | outcome | seconds | reason |",
        "|---|---|---|---|",
    ]
    for name, row in results.rows.items():
        reason = row["reason"] if row["outcome"] == "skipped" else "below" if row["outcome"] == "FAILED" else ""
        page.append(
            f"| {name.removeprefix('tests/device_suite/')} | {row['outcome']} | {row['seconds']:.1f} | {reason} |"
        )
    for name, row in results.rows.items():
        if row["outcome"] == "FAILED":
            page += ["", f"## {name}", "", "```", row["reason"], "```"]
    return page


def commit() -> str:
    command_line = ["git", "-C", str(REPO), "describe", "--always", "--dirty"]
    return subprocess.run(command_line, capture_output=True, text=True).stdout.strip() or "unknown"


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word]
    if len(arguments) not in (1, 2):
        raise SystemExit(refuse("which device? make test-device DEVICE=cuda (or hpu, xpu, mps, cpu, rgpu)"))
    default = REPO / "runs" / f"device-report-{arguments[0]}.md"
    raise SystemExit(main(arguments[0], Path(arguments[1]) if len(arguments) == 2 else default))
