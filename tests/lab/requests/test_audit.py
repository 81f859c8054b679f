"""The requests of audits: defaults, and values that cannot be."""

import pytest

from vernier.errors import ConfigError
from vernier.lab.requests.audit import Audit, Certify, Verify


def test_an_audit_samples_and_a_verification_reads_hashes_unless_told_otherwise() -> None:
    assert (Audit(run="r").sample, Audit(run="r").full, Audit(run="r").procs) == (5, False, 1)
    assert (Verify(file="f").depth, Certify(run="r").key) == ("hashes", None)


@pytest.mark.parametrize("name", ["sample", "procs"])
def test_nothing_is_no_number_of_intervals_or_processes(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Audit(run="r", **{name: 0})  # type: ignore[arg-type]
    assert set(refused.value.given) == {name}
