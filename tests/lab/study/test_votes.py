"""Devices that did the same steps vote: a minority is named, the others get bounds, healthy fleets no accusation."""

import math
import random

import pytest

from vernier.lab.records.bench import ExactResult
from vernier.lab.study.votes import Ballot, Dissent, Electorate, hours_needed, vote

RIGHT = ("step 5 aa", "step 10 bb", "sum cc")
HOURS = 0.01


def ballot(device: str, results: tuple[str, ...] = RIGHT, library: str = "torch 2", hours: float = HOURS) -> Ballot:
    return Ballot(device=device, model="A", hours=hours, result=ExactResult(library=library, fingerprints=results))


def fleet(devices: int, repeats: int, wrong: dict[tuple[int, int], tuple[str, ...]] | None = None) -> list[Ballot]:
    """`wrong`: what a device computed in a repeat instead."""
    wrong = wrong or {}
    return [ballot(f"d{i:02d}", wrong.get((i, k), RIGHT)) for k in range(repeats) for i in range(devices)]


def judged(ballots: list[Ballot]) -> Electorate:
    (result,) = vote(ballots)
    return result


def test_a_healthy_fleet_gets_bounds_alone() -> None:
    result = judged(fleet(20, 5))
    assert (result.dissents, result.no_verdict) == ((), "")
    assert result.rate_per_hour() == pytest.approx(-math.log(0.05) / (100 * HOURS))
    assert result.rate_per_repeat() == pytest.approx(1 - 0.05 ** (1 / 100))
    assert result.prevalence(1.0) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert result.prevalence(0.01) > 0.9  # five repeats say little about rare errors


def test_a_stuck_bit_is_permanent_and_named_with_its_first_fingerprint() -> None:
    result = judged(fleet(10, 3, {(4, k): ("step 5 aa", "step 10 xx", "sum yy") for k in range(3)}))
    assert result.dissents == (Dissent(device="d04", verdict="permanent", wrong=3, repeats=3, first="step 10"),)
    assert result.clean == 9


def test_errors_that_come_and_go_are_intermittent_and_one_alone_is_suspected() -> None:
    result = judged(fleet(200, 4, {(1, 0): ("x1",), (1, 2): ("x2",), (7, 3): ("x3",)}))
    assert [(each.device, each.verdict) for each in result.dissents] == [("d01", "intermittent"), ("d07", "suspected")]


def test_several_devices_with_the_same_other_result_are_not_accused() -> None:
    other = {(i, k): ("zz", "zz", "zz") for i in (2, 3) for k in range(2)}
    assert {each.verdict for each in judged(fleet(10, 2, other)).dissents} == {"another class"}


@pytest.mark.parametrize(
    ("ballots", "reason"),
    [
        (fleet(2, 3, {(0, 0): ("x",)}), "needs 3"),
        (fleet(4, 1, {(0, 0): ("x",), (1, 0): ("x",)}), "more than half"),
        (fleet(6, 3, {(i, 0): (f"x{i}",) for i in range(4)}), "not repeatable"),
    ],
)
def test_without_a_majority_nobody_is_accused(ballots: list[Ballot], reason: str) -> None:
    result = judged(ballots)
    assert result.dissents == ()
    assert reason in result.no_verdict


def test_only_equal_devices_vote_together() -> None:
    ballots = [*fleet(3, 1), *(ballot(f"e{i}", ("q",), library="torch 3") for i in range(3))]
    assert [(each.devices, each.dissents) for each in vote(ballots)] == [(3, ()), (3, ())]


@pytest.mark.parametrize("fault", ["rate", "stuck", "hot"])
def test_simulated_fleets_name_the_faulty_device_and_no_other(fault: str) -> None:
    rng, named, fleets = random.Random(5), 0, 200
    for _ in range(fleets):
        hot = [rng.random() < 0.4 for _ in range(5)]
        errs = [{"rate": rng.random() < 0.5, "stuck": True, "hot": hot[k]}[fault] for k in range(5)]
        wrong = {(3, k): ("stuck",) if fault == "stuck" else (f"wrong{k}",) for k in range(5) if errs[k]}
        result = judged(fleet(12, 5, wrong))
        assert {each.device for each in result.dissents} == ({"d03"} if any(errs) else set())
        named += bool(result.dissents)
    expected = {"rate": 1 - 0.5**5, "stuck": 1.0, "hot": 1 - 0.6**5}[fault]
    assert named / fleets == pytest.approx(expected, abs=0.05)


def test_the_hours_that_a_statement_needs() -> None:
    assert hours_needed(1e-3) == pytest.approx(2996, abs=1)
    assert judged([ballot(f"d{i}", hours=1000) for i in range(3)]).rate_per_hour() == pytest.approx(1e-3, rel=0.01)
