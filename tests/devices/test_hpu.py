"""Gaudi, against fakes."""

import pytest
import torch

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake
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
