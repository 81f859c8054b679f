"""Races on synthetic rates: the best value is found, and a slower one is chosen as rarely as promised."""

import math
import random
from collections.abc import Mapping

import pytest

from vernier.lab.tuning.racing import ERROR, LOOKS, WORTH, Race, paired_ratio


def run_race(speeds: Mapping[str, float], noise: float, seed: int, *, drift: float = 0.0) -> Race:
    """A race of values with these speeds as multiples of the base's; `drift` moves all of them from round to round."""
    generator = random.Random(seed)
    race = Race(list(speeds))
    level = 0.0
    while not race.over:
        level += generator.gauss(0, drift)
        rates = {name: math.exp(level + generator.gauss(math.log(speed), noise)) for name, speed in speeds.items()}
        race.add(math.exp(level + generator.gauss(0, noise)), rates)
    return race


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_a_value_that_is_not_faster_is_chosen_in_less_than_the_promised_share_of_races(noise: float) -> None:
    races = 300
    chosen = [run_race({"same": 1.0, "slower": 0.97, "much": 0.5}, noise, seed).winner() for seed in range(races)]
    wrong = sum(name is not None for name in chosen)
    assert wrong <= (ERROR / 2 + 0.03) * races  # 2.5 % is promised; with 300 races 5.5 % are 3 standard errors more
    assert "much" not in chosen


@pytest.mark.parametrize(("noise", "gain"), [(0.01, 1.05), (0.03, 1.15), (0.05, 1.3)])
def test_the_best_of_several_is_found(noise: float, gain: float) -> None:
    speeds = {"a": 0.8, "b": 1.0, "best": gain, "good": 1 + (gain - 1) / 3}
    winners = [run_race(speeds, noise, seed, drift=0.03).winner() for seed in range(100)]
    assert winners.count("best") >= 95


def test_a_disturbance_of_the_whole_machine_cancels_within_rounds() -> None:
    assert all(run_race({"b": 1.0}, 0.005, seed, drift=0.3).winner() is None for seed in range(50))


def test_slower_values_take_no_turns_after_the_first_look() -> None:
    race = run_race({"slow": 0.5, "fast": 1.02}, 0.01, 1)
    assert len(race.rates["slow"]) == LOOKS[0] < len(race.rates["fast"])
    assert race.is_slower("slow")


def test_a_clear_winner_ends_the_race_at_the_first_look() -> None:
    race = run_race({"fast": 1.5}, 0.01, 1)
    assert race.rounds == LOOKS[0]
    assert race.winner() == "fast"
    assert race.over


def test_a_gain_too_small_to_matter_is_no_reason_for_a_change() -> None:
    race = run_race({"hardly": 1 + WORTH / 4}, 0.0005, 3)
    assert race.winner() is None
    assert not race.is_slower("hardly")
    assert race.ratio("hardly").low > 0  # type: ignore[union-attr]  # certainly faster, and yet not worth it


def test_the_race_is_judged_at_looks_only() -> None:
    race = Race(["b"])
    for _ in range(LOOKS[0] - 1):
        race.add(1.0, {"b": 0.1 + 0.01 * race.rounds})
    assert race.open == ["b"]
    race.add(1.0, {"b": 0.1})
    assert race.open == []


def test_a_race_without_rounds_chooses_nothing() -> None:
    race = Race(["b"])
    assert race.winner() is None
    assert race.ratio("b") is None


def test_intervals_of_paired_ratios_hold() -> None:
    generator, held = random.Random(0), 0
    for _ in range(1000):
        base = [math.exp(generator.gauss(0, 0.05)) for _ in range(5)]
        own = [b * math.exp(generator.gauss(0.02, 0.03)) for b in base]
        ratio = paired_ratio(own, base)
        held += ratio.low <= 0.02 <= ratio.high
    assert 925 <= held <= 975


def test_two_rounds_have_no_interval() -> None:
    ratio = paired_ratio([1.0, 1.1], [1.0, 1.0])
    assert math.isinf(ratio.low)
    assert math.isinf(ratio.high)


def test_a_race_whose_last_candidate_fails_in_a_round_that_is_judged_is_over() -> None:
    """It ended the whole search with an error about an empty sequence."""
    race = Race(["fast"])
    for _ in range(LOOKS[0] - 1):
        race.add(1.0, {"fast": 1.01})
    race.drop("fast")
    race.add(1.0, {})
    assert race.over
    assert race.winner() is None or race.rates["fast"]
