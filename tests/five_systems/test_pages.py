"""What the pages "Coming from ..." say about flags that have no setting of their own."""

import re

import pytest

from tests.documented import DOCS, fences
from vernier.measure.machine.environment import collect_environment

HABANA = DOCS / "coming-from-habana.md"


def test_flags_of_mpirun_are_kept_or_explained() -> None:
    """Every flag of the 64-card line is in its equivalent, or the text of the page names it."""
    blocks = list(fences(HABANA))
    their_number = next(i for i, block in enumerate(blocks) if "-np 64" in block.text)
    assert blocks[their_number + 1].language == "sh"
    page, ours = HABANA.read_text(encoding="utf-8"), blocks[their_number + 1].text
    prose = "".join(re.split(r"```.*?```", page, flags=re.DOTALL))
    for flag in ("--mca plm_rsh_args -p3022", "--bind-to core", "--map-by socket:PE=7", "-H 192.10.100.174:8"):
        assert flag in ours
    assert "HCCL_SOCKET_IFNAME" in ours
    for flag in ():
        assert flag in ours or flag in prose


def test_the_network_interface_of_hccl_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_SOCKET_IFNAME", "eth7")
    assert collect_environment([], "cpu", threads=1).variables["HCCL_SOCKET_IFNAME"] == "eth7"
