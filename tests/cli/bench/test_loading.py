from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from vernier.devices.cpu import compiler


def test_the_loader_is_measured_beside_another_one(vernier_here: Callable[..., Done], shapes: Path) -> None:
    flags = "--against pillow --rounds 2 --images 16 --image-px 32 --json"
    done = vernier_here("bench", "data", "--data", str(shapes), *flags.split())
    assert done.code == 0, done.err
    names = [row["name"] for row in done.json()["contenders"]]
    assert names == ["vernier x2", "pillow x2", "vernier x1"]
    assert len(done.json()["ratios"]) == 2
    assert "RandomResizedCrop of 8 to 100 % of the area to 32 px, flip · 2 loader threads" in done.json()["what_ran"]


@pytest.mark.skipif(compiler() is None, reason="the decoder is compiled by a C++ compiler")
def test_the_compiled_decoder_is_a_contender(vernier_here: Callable[..., Done], shapes: Path) -> None:
    flags = "--against compiled --rounds 2 --images 16 --image-px 32 --workers 1 --json"
    done = vernier_here("bench", "data", "--data", str(shapes), *flags.split())
    assert done.code == 0, done.err
    assert [row["name"] for row in done.json()["contenders"]] == ["vernier x1", "compiled x1"]
    (ratio,) = done.json()["ratios"]
    assert (ratio["name"], ratio["against"]) == ("vernier x1", "compiled x1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "--rounds 0 is out of range"),
        (["--images", "0"], "--images 0 is out of range"),
        (["--workers", "0"], "--workers 0"),
        (["--image-px", "4"], "--image-px 4"),
        (["no-such-recipe"], "There is no recipe or network 'no-such-recipe'"),
        (["cifar10", "--against", "pillow"], "Leave --against out"),
    ],
)
def test_wrong_input_is_explained(vernier_here: Callable[..., Done], arguments: list[str], words: str) -> None:
    done = vernier_here("bench", "data", *arguments, "--data", "photos")
    assert done.code == 2
    assert words in done.err
