import dataclasses

import pytest

from vernier.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 0


def test_fields_are_given_by_name_and_never_change() -> None:
    point = Point(x=1)
    assert dataclasses.replace(point, y=2) == Point(x=1, y=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]
