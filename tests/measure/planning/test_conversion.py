"""How far conversions by multiply-accumulates are off, on speeds that are known."""

import pytest

from vernier.config import Model
from vernier.measure.planning.conversion import conversion_error, conversion_rows, conversion_span, speeds
from vernier.measure.planning.estimate import gmac


def test_only_speeds_of_one_device_are_converted_into_each_other() -> None:
    rows = conversion_rows()
    counts = [sum(s.device == device for s in speeds()) for device in {s.device for s in speeds()}]
    assert len(rows) == sum(n * (n - 1) for n in counts)
    there = next(r for r in rows if (r.converted_from, r.to) == ("resnet50 at 224 px", "resnext101-32x4d at 224 px"))
    back = next(r for r in rows if (r.converted_from, r.to) == (there.to, there.converted_from))
    assert (1 + there.error_percent / 100) * (1 + back.error_percent / 100) == pytest.approx(1, abs=0.01)


def test_the_stated_error_covers_every_conversion() -> None:
    low, high = conversion_span()
    assert low < 0.5 < 2 < high
    assert all(low * 0.99 <= r.true_img_per_s / r.converted_img_per_s <= high * 1.01 for r in conversion_rows())
    assert f"{low:.2g} to {high:.2g} times" in conversion_error()


def test_the_operations_are_those_of_the_catalogue() -> None:
    for speed in speeds():
        name, *changed = speed.network.split(", ")
        if not changed and not name.startswith("ssd"):
            assert gmac(Model(name=name), speed.image_px) == pytest.approx(speed.gmac, rel=1e-3), speed.network
