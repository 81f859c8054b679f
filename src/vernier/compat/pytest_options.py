"""Options of pytest for the suite `vernier.contracts`: `--vernier-model mypackage:Net`, and one per other check.

A plug-in of pytest, since a suite in an installed package cannot add options itself. Imports nothing large: every run
of pytest in this environment loads it.
"""

from typing import Any

_KINDS = ("model", "optimizer", "data", "device")


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("vernier")
    for kind in _KINDS:
        group.addoption(f"--vernier-{kind}", action="append", default=[], metavar="NAME", help=f"{kind} to check")


def pytest_generate_tests(metafunc: Any) -> None:
    if "vernier_contract" in metafunc.fixturenames:
        given = [(kind, name) for kind in _KINDS for name in metafunc.config.getoption(f"--vernier-{kind}")]
        metafunc.parametrize("vernier_contract", given, ids=[f"{kind}-{name}" for kind, name in given])
