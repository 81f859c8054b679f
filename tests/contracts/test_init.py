"""The checks pass what keeps a contract, and name what is broken."""

import pytest
from torch import Tensor, nn

from tests.compat.models import my_models
from vernier.contracts import check_device, check_model, check_optimizer
from vernier.own_code import refer_to


def test_built_in_parts_keep_their_contracts() -> None:
    check_optimizer("lamb")
    check_device("cpu")
    check_model("resnet8-small")


class OfBatch(my_models.Net):
    """Scores are relative to those of the other images."""

    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        return scores - 5 * scores.mean(0)


class Unused(my_models.Net):
    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.auxiliary = nn.Linear(2, 2)


class Counts(my_models.Net):
    """What it computes depends on how often it was called."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counts.calls += self.training
        return super().forward(x) * (1 + Counts.calls)


@pytest.mark.parametrize(
    ("model", "part"),
    [
        (OfBatch, "depend on the other images"),
        (Unused, "no gradient reaches auxiliary.weight"),
        (Counts, "a resumed run has other weights"),
    ],
)
def test_what_breaks_a_contract_is_named(model: type[nn.Module], part: str) -> None:
    with pytest.raises(AssertionError, match=part):
        check_model(refer_to(model))
