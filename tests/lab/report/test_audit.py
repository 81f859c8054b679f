"""An audit in words: what differs, whose device it was, what may be missed, and what proves nothing."""

from dataclasses import replace

from tests.lab.audit.test_records import RESULT
from vernier.lab.audit.records import Verification
from vernier.lab.report.audit import audit_lines, verify_lines


def test_a_difference_names_steps_tensors_shards_and_device() -> None:
    text = "\n".join(audit_lines(RESULT))
    for part in ("21 to 25", "gradients", "stem.weight", "4, 5", "node7", "GPU-1", "50 %"):
        assert part in text


def test_a_fault_between_two_fingerprints_names_no_tensor() -> None:
    (wrong,) = [each for each in RESULT.intervals if each.difference]
    assert wrong.difference is not None
    spread = replace(wrong.difference, shards=(), suspects=())
    text = "\n".join(audit_lines(replace(RESULT, intervals=(replace(wrong, difference=spread),))))
    assert "21 to 25" in text
    assert "stem.weight" not in text
    assert "nor is the device" in text


def test_a_doubt_leaves_it_undecided() -> None:
    text = "\n".join(audit_lines(replace(RESULT, verdict="cannot tell", doubts=("PyTorch was 1.0, here it is 2.0",))))
    assert "undecided" in text
    assert "PyTorch was 1.0" in text


def test_checkpoints_that_were_damaged_are_listed() -> None:
    assert any("30" in line and "checkpoint" in line for line in audit_lines(replace(RESULT, damaged=(30,))))


def test_a_verification_lists_what_changed() -> None:
    text = "\n".join(
        verify_lines(Verification(run="r", verdict="differs", files=9, problems=("config.json: missing",)))
    )
    assert "1 of 9 files" in text
    assert "config.json: missing" in text
    assert "signed" in "\n".join(verify_lines(Verification(run="r", verdict="agrees", files=9, signed=True)))
