"""Which guarantees are listed for which code. That changed code is refused: tests/integration/test_own_code.py."""

from vernier.config import Augment, Loss, Recipe
from vernier.engine.training.guarantees import describe_code, guarantees


def test_built_in_recipes_have_no_outside_code() -> None:
    assert describe_code(Recipe()) == ()
    assert guarantees(()) == ()


def test_what_is_listed_follows_from_the_code() -> None:
    code = describe_code(Recipe(loss=Loss(kind="torch.nn.functional:cross_entropy")))
    assert [each.setting for each in code] == ["loss.kind"]
    assert code[0].package.startswith("torch ")
    names, holds, depends = guarantees(code)
    assert "torch.nn.functional:cross_entropy" in names
    assert "rng" not in holds + depends
    extra = describe_code(Recipe(augment=Augment(extra=("torch.nn.functional:relu",))))
    assert "rng" in guarantees(extra)[1]
