"""Metal, against fakes."""

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake
from vernier.devices.mps import Mps


def test_mps_keeps_the_contract_against_a_fake(fake_mps: RecordedCallFake) -> None:
    check_contract(Mps(), 1)
    assert "synchronize" in fake_mps.called()
