from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done


def test_the_loader_is_measured_beside_another_one(vernier_here: Callable[..., Done], shapes: Path) -> None:
    flags = "--against pillow --rounds 2 --images 16 --image-px 32 --json"
    done = vernier_here("bench", "data", "--data", str(shapes), *flags.split())
    assert done.code == 0, done.err
    assert len(done.json()["contenders"]) == 2
    assert len(done.json()["ratios"]) == 1
