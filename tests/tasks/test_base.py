"""What every task gives the engine."""

import pytest

from vernier import recipes
from vernier.tasks import task_of


@pytest.mark.parametrize(
    ("name", "task", "metric", "outputs"),
    [("shapes-quick", "classify", "top1", 10), ("ssd-shapes-quick", "detect", "AP", 11)],
)
def test_the_network_decides_the_task(name: str, task: str, metric: str, outputs: int) -> None:
    chosen = task_of(recipes.get(name))
    assert (chosen.name, chosen.metric) == (task, metric)
    assert chosen.outputs(10) == outputs  # a detector has one more, for the background
