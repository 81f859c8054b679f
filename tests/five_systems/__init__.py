"""The features of the five systems that Vernier succeeds: one table per system, and the tests that no other folder has.

Each `.csv` file is one system: number, feature, state, proof and note per line. Proofs are names of tests as pytest
takes them, or commands in backquotes, separated by spaces or semicolons. `python -m tests.five_systems >
docs/five-systems.md` makes the page of the documentation; `test_table.py` checks both.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vernier.config.derived import Derived

FOLDER = Path(__file__).parent
Cases = dict[str, tuple[str, dict[str, Any]]]
"""Number of a row, or system and number -> what is looked at, and the settings it must have: path -> value."""
SYSTEMS = {
    "habana-resnet50": "Habana: ResNet-50 for PyTorch",
    "habana-ssd": "Habana: SSD-ResNet34 for TensorFlow",
    "habana-resnext101": "Habana: ResNeXt-101 for TensorFlow",
    "nvidia-resnet50": "NVIDIA: ResNet-50 v1.5 for PyTorch",
    "sc22-study": "SC22 study of GPU variability, ResNet-50 part",
}
STATES = {
    "test": "proven by a test on a CPU",
    "device": "proven on the queueing test device or against the vendor's interface; the hardware was not run",
    "page": "explained on the page for those who come from there; a test reads the page, nothing is run",
    "left out": "deliberately left out",
    "partly": "works partly",
    "absent": "absent",
}


@dataclass(frozen=True)
class Row:
    """A feature of one of the systems."""

    system: str
    number: int
    feature: str
    state: str
    proof: str
    note: str

    @property
    def key(self) -> str:
        return f"{self.system}-{self.number}"

    @property
    def tests(self) -> list[str]:
        """The tests named as its proof, as pytest takes them."""
        return re.findall(r"tests/[\w/]+\.py::\w+(?:\[[\w.-]+\])?", self.proof)

    @property
    def commands(self) -> list[str]:
        """The commands named as its proof."""
        return re.findall(r"`([^`]+)`", self.proof)


def rows_of(system: str) -> list[Row]:
    """The table of one system."""
    with (FOLDER / f"{system}.csv").open(encoding="utf-8", newline="") as file:
        return [
            Row(system, int(line["number"]), line["feature"], line["state"], line["proof"], line["note"])
            for line in csv.DictReader(file)
        ]


def all_rows() -> list[Row]:
    """The tables of all systems."""
    return [row for system in SYSTEMS for row in rows_of(system)]


def by_system(cases: dict[str, Cases]) -> Cases:
    """The cases of all systems, by system and number of the row."""
    return {f"{system}-{number}": case for system, own in cases.items() for number, case in own.items()}


def check_values(root: object, derived: Derived, values: dict[str, Any]) -> None:
    """Settings below `root`, and what follows from them (`derived.lr`), are as given."""
    for path, value in values.items():
        actual: Any = {"derived": derived} if path.startswith("derived.") else root
        for part in path.split("."):
            actual = actual[part] if isinstance(actual, dict) else getattr(actual, part)
        assert actual == (pytest.approx(value) if isinstance(value, float) else value), path
