"""The order of arms, and the processes that measure them; the processes here are small scripts, not Vernier."""

import sys
from pathlib import Path

import pytest

from tests.lab.bench.sample_rounds import step_result
from vernier.errors import RunFailed
from vernier.lab import worker
from vernier.lab.bench import arms as bench_arms
from vernier.lab.bench.arms import Arm, _expected_failure, run_arms, run_in_process, run_study_repeat
from vernier.records.bench import ArmFailure, ArmLabels, ArmProgress, ArmRequest, RepeatResult, StudyRequest


def an_arm(name: str, batch: int = 1, mode: str = "eager") -> Arm:
    return Arm(name=name, labels=ArmLabels(batch=batch, mode=mode), request=ArmRequest(what="train", config={}))


def test_every_arm_runs_once_per_round_in_an_order_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_arms, "run_in_process", lambda arm, _: step_result([1.0, 1.0]))
    arms = [an_arm(str(i)) for i in range(6)]
    rounds = list(run_arms(arms, repeats=4, seed=3))
    orders = [[r.arm for r in rounds if r.round == k] for k in range(4)]
    assert all(sorted(o) == sorted(a.name for a in arms) for o in orders)
    assert len({tuple(o) for o in orders}) > 1
    assert [r.order for r in rounds] == list(range(24))
    again = run_arms(arms, repeats=4, seed=3)
    assert [r.arm for r in again] == [r.arm for r in rounds]


def test_larger_batches_are_not_tried_after_a_smaller_one_did_not_fit() -> None:
    arms = [an_arm(f"b{b}", b) for b in (1, 2, 4)]
    failures = {"b2": ArmFailure(status="out-of-memory", why="full")}
    assert _expected_failure(arms[0], arms, failures) is None
    failure = _expected_failure(arms[2], arms, failures)
    assert failure is not None
    assert "batch 2" in failure.why
    other = an_arm("x", 8, "compile")
    assert _expected_failure(other, [*arms, other], failures) is None


def test_an_arm_that_failed_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def refuse(arm: Arm, _: object) -> ArmFailure:
        ran.append(arm.name)
        return ArmFailure(status="refused", why="no such device")

    monkeypatch.setattr(bench_arms, "run_in_process", refuse)
    rounds = list(run_arms([an_arm("a")], repeats=3, seed=0))
    assert ran == ["a"]
    assert len(rounds) == 3


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Measuring processes run this Python text, with the paths of the request and of the answer as arguments."""
    (tmp_path / "process.py").write_text(text)
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, str(tmp_path / "process.py")])


def test_a_refusal_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        tmp_path,
        monkeypatch,
        "import json, sys; json.dump({'status': 'refused', 'why': json.load(open(sys.argv[1]))['what']},"
        " open(sys.argv[2], 'w'))",
    )
    assert run_in_process(an_arm("a")) == ArmFailure(status="refused", why="train")


def test_what_a_process_is_doing_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        tmp_path,
        monkeypatch,
        "import json, sys\n"
        "request = json.load(open(sys.argv[1]))\n"
        "assert request['started_s'] > 0\n"
        "json.dump({'phase': 'warm-up', 'steps': 3}, open(request['progress'], 'w'))\n"
        "json.dump({'status': 'refused', 'why': 'x'}, open(sys.argv[2], 'w'))\n",
    )
    shown: list[object] = []
    run_in_process(an_arm("a"), lambda arm, progress: shown.append((arm.name, progress)))
    assert shown[-1] == ("a", ArmProgress(phase="warm-up", steps=3))


def test_an_older_version_that_says_nothing_meanwhile_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, monkeypatch, 'import sys; open(sys.argv[2], \'w\').write(\'{"status": "refused", "why": "x"}\')')
    shown: list[object] = []
    run_in_process(an_arm("a"), lambda arm, progress: shown.append(progress))
    assert set(shown) == {None}


def test_a_killed_process_ran_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "import os; os.kill(os.getpid(), 9)")
    result = run_in_process(an_arm("a"))
    assert isinstance(result, ArmFailure)
    assert result.status == "out-of-memory"


def test_a_process_without_an_answer_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "raise SystemExit('the disk is gone')")
    with pytest.raises(RunFailed, match="arm a failed with exit code 1: the disk is gone"):
        run_in_process(an_arm("a"))


def test_an_answer_that_is_no_result_names_the_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, monkeypatch, "import sys; open(sys.argv[2], 'w').write('{\"status\": \"ok\"}')")
    with pytest.raises(RunFailed, match="process of a answered something else"):
        run_in_process(an_arm("a"))


def test_the_first_pace_of_a_study_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        tmp_path,
        monkeypatch,
        "import json, os, sys\n"
        "pace = json.load(open(sys.argv[1]))['pace']\n"
        "json.dump({'seconds_per_iteration': 0.5}, open(pace, 'w'))\n"
        "json.dump({'status': 'ok', 'time': 'now', 'seconds': [1, 2], 'train_time_s': 3, 'warmup': 1,\n"
        "           'notes': [os.environ['ONLY_DEVICE']]}, open(sys.argv[2], 'w'))\n",
    )
    paces: list[float] = []
    request = StudyRequest(workload="sgemm", iterations=2, device="cpu")
    result = run_study_repeat("gpu0", request, {"ONLY_DEVICE": "7"}, paces.append)
    assert isinstance(result, RepeatResult)
    assert result.seconds == (1.0, 2.0)
    assert result.notes == ("7",)
    assert paces == [0.5]
