"""`check`: exact recipes pass, and code that keeps state is found."""

from pathlib import Path

import pytest

import vernier
from tests.own_parts import TRAIN


@pytest.mark.slow
def test_a_run_that_repeats_is_exact_and_code_with_state_is_not(own: Path) -> None:
    options = {**TRAIN, "data": "mycode:Stripes", "optimizer": "mycode:Sign", "transforms": ["mycode:noise"]}
    exact = vernier.check(**options)
    assert exact.exact
    assert (exact.repeated, exact.resumed) == ((), ())
    stateful = vernier.check(**options, loss="wrong:stateful")
    assert not stateful.exact
    assert stateful.repeated[0].startswith("loss of step 1: ")
    assert any(line.startswith("model: ") for line in stateful.resumed)
    assert not list(own.glob("runs*"))


def test_a_check_chooses_its_steps(own: Path) -> None:
    with pytest.raises(ValueError, match="A check chooses the steps itself"):
        vernier.check(max_steps=3)
