"""Plans as objects of Python."""

from typing import Any

import pytest

import vernier as v


def test_a_plan_has_rows_and_notes_in_the_words_of_python() -> None:
    plan = v.plan("nvidia-resnet50-90e", bench=2470, devices="8,4096", spread=0.02)
    assert [row.devices for row in plan.rows] == [8]
    assert (plan.scaling, plan.workload.spread, plan.workload.images_per_s) == ("strong", 0.02, 2470)
    assert plan.summary[0].startswith("plan for    nvidia-resnet50-90e")
    assert any("weak=True lets the batch grow" in note for note in plan.notes)


def test_parts_of_the_network_and_the_batch_are_changed() -> None:
    plan = v.plan("resnet18", bench="100", network="dgx-1", per_host=4, host_gb_s=2, weak=True, batch=16, devices="8")
    assert (plan.network.per_host, plan.network.host_gb_s, plan.network.link_gb_s) == (4, 2, 150)
    assert (plan.scaling, plan.rows[0].global_batch) == ("weak", 128)


@pytest.mark.parametrize(
    ("options", "given", "works"),
    [
        ({"devices": "8..4"}, {"devices": "8..4"}, []),
        ({"batch": 4, "bench": "runs/x"}, {"batch": 4}, [("weak", True)]),
        ({"devices": "5000"}, {}, [("devices", 2048), ("weak", True)]),
    ],
)
def test_what_cannot_be_planned_is_refused(
    options: dict[str, Any], given: dict[str, Any], works: list[tuple[str, Any]]
) -> None:
    with pytest.raises(v.ConfigError) as refused:
        v.plan("nvidia-resnet50-90e", **{"bench": 100, **options})
    assert (refused.value.given, refused.value.works) == (given, works)
