"""Records of studies: files of earlier versions are read, and written as they were."""

import json
from pathlib import Path

import pytest

from vernier.lab.study.records import Baseline, StudyAnalysis, StudyMeta
from vernier.records.codec import DamagedRecord, decode, encode

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "0.1"


@pytest.mark.parametrize(
    ("record", "name"), [(StudyAnalysis, "analysis.json"), (Baseline, "baseline.json"), (StudyMeta, "study/study.json")]
)
def test_a_file_of_version_0_1_is_read_and_written_alike(record: type, name: str) -> None:
    tree = json.loads((GOLDEN / name).read_text())
    again = encode(decode(record, tree))
    assert again == tree
    assert list(again) == list(tree)


def test_the_verdict_of_a_device_is_the_sure_one() -> None:
    analysis = decode(StudyAnalysis, json.loads((GOLDEN / "analysis.json").read_text()))
    assert [d.verdict for d in analysis.devices].count("fast") == analysis.outliers.sure.fast


def test_damage_names_the_key() -> None:
    tree = json.loads((GOLDEN / "baseline.json").read_text())
    with pytest.raises(DamagedRecord, match=r"speed\.sd is 'x', not a number"):
        decode(Baseline, {**tree, "speed": {**tree["speed"], "sd": "x"}})
