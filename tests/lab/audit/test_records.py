"""Results of audits survive JSON, and count their steps."""

import json

from vernier.lab.audit.records import AuditResult, Difference, Interval, Verification
from vernier.records.codec import decode, encode
from vernier.records.events import ProcessInfo

SUSPECT = ProcessInfo(
    rank=1, host="node7", device="cuda:1", cores=(0,), threads=1, pid=1, launcher="torchrun", uuid="GPU-1"
)
RESULT = AuditResult(
    run="runs/a",
    verdict="differs",
    intervals=(
        Interval(start=0, stop=10, compared=2),
        Interval(
            start=20,
            stop=25,
            compared=1,
            difference=Difference(
                step=25, after=20, kinds=("gradients",), tensors=("stem.weight",), shards=(4, 5), suspects=(SUSPECT,)
            ),
        ),
    ),
    of_intervals=4,
    missed=0.5,
)


def test_steps_are_those_that_were_replayed() -> None:
    assert RESULT.steps == 15


def test_results_survive_json() -> None:
    assert decode(AuditResult, json.loads(json.dumps(encode(RESULT)))) == RESULT
    verified = Verification(run="runs/a", verdict="differs", files=3, problems=("config.json: missing",), audit=RESULT)
    assert decode(Verification, json.loads(json.dumps(encode(verified)))) == verified
