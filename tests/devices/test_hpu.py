"""Gaudi, against fakes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake
from tests.measure.telemetry.gaudi_host import path_with, put_hl_smi, uuid_of
from vernier.devices.hpu import Hpu


def test_hpu_keeps_the_contract_against_a_fake(fake_hpu: RecordedCallFake) -> None:
    check_contract(Hpu(), 8)
    assert "synchronize" in fake_hpu.called()


def test_gaudi_marks_steps_in_lazy_mode_only_against_a_fake(
    fake_hpu: RecordedCallFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hpu().mark_step()
    assert "mark_step" not in fake_hpu.called()
    net = torch.nn.Linear(1, 1)
    assert Hpu().for_inference(net) is net
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    Hpu().mark_step()
    assert "mark_step" in fake_hpu.called()
    assert Hpu().for_inference(net) is not net
    assert Hpu().answer("bf16", "compile").verdict == "refused"


def test_gaudi_prepares_its_own_card_against_a_fake(fake_hpu: RecordedCallFake) -> None:
    Hpu().prepare("bf16", local_rank=9)
    assert ("set_device", (1,)) in fake_hpu.calls


class GaudiHost(Hpu):
    """The devices of a host whose hl-smi is real; `VISIBLE` of them can be seen."""

    VISIBLE = 8

    @classmethod
    def library(cls) -> Any:
        return SimpleNamespace(device_count=lambda: cls.VISIBLE, get_device_name=lambda index: "GAUDI2")


class HalfOfGaudiHost(GaudiHost):
    VISIBLE = 4


@pytest.fixture
def hl_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", path_with(tmp_path))
    for variable in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
        monkeypatch.delenv(variable, raising=False)
    return put_hl_smi(tmp_path)


def test_gaudi_modules_are_numbered_by_module_id_and_not_by_the_order_of_hl_smi(hl_smi: Path) -> None:
    assert [d.uuid for d in GaudiHost().identity()] == [uuid_of(module) for module in range(8)]


def test_a_process_on_some_gaudi_modules_limits_its_children_by_module_id(
    hl_smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "5,4,7,6")
    visible = HalfOfGaudiHost().identity()
    assert [d.uuid for d in visible] == [uuid_of(module) for module in (5, 4, 7, 6)]
    variables = HalfOfGaudiHost().environment_for(visible[2])
    assert variables == {"HABANA_VISIBLE_MODULES": "7", "HLS_MODULE_ID": "7"}
    hl_smi.unlink()  # without it, by the place in the list
    assert HalfOfGaudiHost().environment_for(visible[3])["HABANA_VISIBLE_MODULES"] == "6"


def test_a_gaudi_process_knows_its_module_only_where_one_was_chosen(
    hl_smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the driver gives it any module that is free."""
    assert GaudiHost().own_device(0).uuid is None
    monkeypatch.setenv("HLS_MODULE_ID", "6")
    assert GaudiHost().own_device(0).uuid == uuid_of(6)
    monkeypatch.setenv("HLS_MODULE_ID", "9")
    assert GaudiHost().own_device(0).uuid is None


def test_an_hl_smi_that_fails_or_hangs_gives_no_uuids(hl_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_hl_smi(hl_smi.parent, "exit 1")
    assert {d.uuid for d in GaudiHost().identity()} == {None}
    put_hl_smi(hl_smi.parent, "exec sleep 60")
    monkeypatch.setattr("vernier.devices.hpu.HL_SMI_TIMEOUT_S", 0.2)
    assert {d.uuid for d in GaudiHost().identity()} == {None}
