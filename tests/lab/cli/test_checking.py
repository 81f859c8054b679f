"""What `vernier check` prints."""

from vernier.lab.api.checking import Repeatability
from vernier.lab.cli.checking import _lines


def test_lines_name_what_differs() -> None:
    assert _lines(Repeatability(steps=4, repeated=(), resumed=("loss of step 3: 1.0 and 2.0",))) == [
        "repeated   4 steps: bit-identical",
        "resumed    after 2 of 4 steps: DIFFERS: loss of step 3: 1.0 and 2.0",
    ]
