"""What the pages "Coming from ..." say about flags that have no setting of their own."""

from itertools import pairwise

import pytest

from tests.documented import DOCS, fences
from vernier.measure.environment import collect_environment

HABANA = DOCS / "coming-from-habana.md"


def test_the_network_interface_of_hccl_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_SOCKET_IFNAME", "eth7")
    assert collect_environment([], "cpu", threads=1).variables["HCCL_SOCKET_IFNAME"] == "eth7"


def test_demos_that_run_in_graph_mode_are_compiled() -> None:
    """Theirs runs in graph mode unless told otherwise; every equivalent says which mode it is, and so does the text."""
    blocks = list(fences(HABANA))
    demos = [(a.text, b.text) for a, b in pairwise(blocks) if a.text.startswith("./demo_resnet") and b.language == "sh"]
    assert len(demos) == 6
    for theirs, ours in demos:
        assert f"--mode {'eager' if '--mode eager' in theirs else 'compile'}" in ours
    assert "`demo_resnet` runs in graph mode unless told otherwise" in HABANA.read_text(encoding="utf-8")
