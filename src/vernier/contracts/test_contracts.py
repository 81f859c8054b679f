"""The suite: one test for everything that the options of pytest name (`compat.pytest_options`)."""

from vernier.contracts import CHECKS


def test_the_contract_is_kept(vernier_contract: tuple[str, str]) -> None:
    kind, name = vernier_contract
    CHECKS[kind](name)
