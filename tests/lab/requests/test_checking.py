"""`check` takes what `train` takes."""

from vernier.lab.requests.checking import Check
from vernier.requests.declaring import options_of
from vernier.requests.training import Train


def test_it_has_the_options_of_train() -> None:
    assert {each.name for each in options_of(Train)} <= {each.name for each in options_of(Check)}
