import json
from pathlib import Path

from vernier.records.codec import decode, encode
from vernier.records.profile import ProfileSummary

FILE = next((Path(__file__).parents[1] / "golden/0.1").rglob("profile.rank0.json"))


def test_a_profile_of_version_0_1_is_read_and_written_alike() -> None:
    tree = json.loads(FILE.read_text())
    profile = decode(ProfileSummary, tree)
    assert profile.steps == tuple(tree["steps"])
    assert sum(profile.where_the_time_goes.share.values()) > 0.99
    assert json.loads(json.dumps(encode(profile))) == tree
