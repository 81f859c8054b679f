"""A device that computes wrong is found while training, by what it computed; healthy ones raise no alarm."""

import json
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.corruption import Fault
from tests.conftest import TINY
from vernier.lab.audit.records import Interval
from vernier.lab.audit.replay import Audit
from vernier.store import RunDir

PATIENCE_S = 600
ROOT = Path(__file__).parents[2]


def train(
    folder: Path, shapes: Path, fault: Fault, world: int, *more: str
) -> tuple[list[int], str, list[dict[str, Any]]]:
    """Exit codes of the processes, what they wrote to stderr, and the events."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["train", "--data", str(shapes), "--out", str(folder), *TINY, "--set", "eval.every_epochs=0"]
    words += ["--max-steps", "6", "--set", "audit.every_steps=1", "--set", "machine.threads=1", "--global-batch", "24"]
    variables = ["OMP_NUM_THREADS=1", f"WORLD_SIZE={world}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
    processes = [
        subprocess.Popen(
            ["env", f"RANK={rank}", *variables, *fault.arguments(*words, *more)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    errors = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
    (run,) = folder.iterdir()
    lines = (run / "events.jsonl").read_text().splitlines()
    return [process.returncode for process in processes], "\n".join(errors), [json.loads(line) for line in lines]


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


WRONG = Fault(place="weight", step=3, rank=1, tensor=2, element=5)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["weight", "optimizer", "all-reduce"])
def test_what_only_one_process_holds_names_its_device(place: str, shapes: Path, tmp_path: Path) -> None:
    codes, errors, events = train(tmp_path / "runs", shapes, replace(WRONG, place=place), 3)
    assert set(codes) == {1}
    (found,) = of_kind(events, "divergence")
    assert (found["step"], found["ranks"]) == (3, [1])
    assert "computed wrong" in errors
    # With the momentum or the gradient, the weight of the same tensor is wrong.
    assert "conv" in found["quantity"] or "bn" in found["quantity"]
    assert not of_kind(events, "checkpoint")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["gradient", "batch", "convolution"])
def test_what_is_in_every_sum_is_found_by_spot_checks(place: str, shapes: Path, tmp_path: Path) -> None:
    exact = ["--set", "machine.reduction=exact", "--set", "audit.spot_check=1"]
    codes, _, events = train(tmp_path / "runs", shapes, replace(WRONG, place=place), 3, *exact)
    assert set(codes) == {1}
    (found,) = of_kind(events, "divergence")
    assert (found["step"], found["ranks"]) == (3, [1])
    assert "virtual shard" in found["quantity"]


@pytest.mark.slow
def test_what_the_first_process_copies_wrong_ends_all_of_them(shapes: Path, tmp_path: Path) -> None:
    saving = replace(WRONG, place="checkpoint", rank=0, tensor=0)
    codes, errors, events = train(tmp_path / "runs", shapes, saving, 2, "--set", "checkpoint.every_steps=3")
    # The first process alone knows. The other one loses its peer: as an error, or gloo aborts it in a collective.
    assert codes[0] == 1
    assert codes[1] in (1, -signal.SIGABRT)
    (found,) = of_kind(events, "divergence")
    assert (found["step"], found["ranks"]) == (3, [0])
    assert "what was to be saved at step 3 is not what training had" in errors
    assert not of_kind(events, "checkpoint")


@pytest.mark.slow
def test_one_process_notices_that_it_contradicts_itself(shapes: Path, tmp_path: Path) -> None:
    exact = ["--set", "machine.reduction=exact", "--set", "audit.spot_check=1"]
    fault = replace(WRONG, place="convolution", rank=0)
    codes, errors, _ = train(tmp_path / "runs", shapes, fault, 1, *exact)
    assert codes == [1]
    assert "twice, with different results" in errors


@pytest.mark.slow
def test_rollback_ends_with_the_weights_of_a_run_without_the_fault(shapes: Path, tmp_path: Path) -> None:
    more = ["--set", "audit.on_corruption=rollback", "--set", "checkpoint.every_steps=2"]
    codes, _, events = train(tmp_path / "wrong", shapes, WRONG, 3, *more)
    assert codes == [0, 0, 0]
    assert [event["resumed_from"] for event in of_kind(events, "divergence")] == [2]
    codes, _, clean = train(tmp_path / "right", shapes, replace(WRONG, step=100), 3, *more)
    assert codes == [0, 0, 0]
    assert not of_kind(clean, "divergence")
    assert of_kind(clean, "fingerprint")[-1]["weights"] == of_kind(events, "fingerprint")[-1]["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["convolution", "weight"])
def test_one_process_audits_three_and_names_the_wrong_one(place: str, shapes: Path, tmp_path: Path) -> None:
    more = [
        "--set",
        "machine.reduction=exact",
        "--set",
        "checkpoint.every_steps=2",
        "--set",
        "audit.on_corruption=warn",
    ]
    codes, _, events = train(tmp_path / "runs", shapes, replace(WRONG, place=place, micro=1, bit=22), 3, *more)
    assert codes == [0, 0, 0]
    (wrong, after), shards = audited(tmp_path / "runs"), 12
    # A wrong convolution is past with its step; wrong weights of one process stay, and so do those of its shards.
    assert (after.difference is None) == (place == "convolution")
    found = wrong.difference
    assert found is not None
    assert wrong.compared == 3  # the first two fingerprints of three processes are those of one
    assert (found.after, found.step) == (2, 3)
    assert {shard * 3 // shards for shard in found.shards} == {1}
    assert [process.rank for process in found.suspects] == [1]
    # Live, three processes see only what they must hold equal: a wrong gradient is in the sum of all of them.
    assert [event["ranks"] for event in of_kind(events, "divergence")] == ([[1]] if place == "weight" else [])


def audited(folder: Path) -> tuple[Interval, ...]:
    audit = Audit(RunDir.open(next(folder.iterdir())), None)
    try:
        return audit.replay(audit.intervals, lambda done, total: None).intervals
    finally:
        audit.close()


@pytest.mark.slow
def test_of_two_processes_a_stuck_one_is_not_told_from_the_other(shapes: Path, tmp_path: Path) -> None:
    exact = ["--set", "machine.reduction=exact", "--set", "audit.spot_check=1"]
    codes, errors, events = train(
        tmp_path / "runs", shapes, replace(WRONG, place="batch", stuck=True, bit=30), 2, *exact
    )
    assert set(codes) == {1}
    assert of_kind(events, "divergence")[0]["ranks"] == [0, 1]
    assert "one of them computed wrong" in errors


@pytest.mark.slow
def test_a_warning_lets_training_continue(shapes: Path, tmp_path: Path) -> None:
    codes, _, events = train(tmp_path / "runs", shapes, WRONG, 2, "--set", "audit.on_corruption=warn")
    assert codes == [0, 0]
    (warned,) = [event["message"] for event in of_kind(events, "warning") if "differ between" in event["message"]]
    assert "rank 0" in warned
    assert "rank 1" in warned


def test_settings_that_cannot_work_are_refused(vernier: Any, shapes: Path, tmp_path: Path) -> None:
    done = vernier("train", "--data", str(shapes), "--out", str(tmp_path), *TINY, "--set", "audit.spot_check=0.5")
    assert done.code == 2
    assert "machine.reduction" in done.err
