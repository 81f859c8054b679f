"""Values compared on synthetic rates: the best value is found, and a slower one is chosen as rarely as promised."""

import math
import random
from collections.abc import Mapping

import pytest

from vernier.lab.tuning.comparing import LOOKS, WORTH, ComparedValues, paired_ratio


def compare_values(speeds: Mapping[str, float], noise: float, seed: int, *, drift: float = 0.0) -> ComparedValues:
    """Values with these speeds as multiples of the base's; `drift` moves all of them from round to round."""
    generator = random.Random(seed)
    compared = ComparedValues(list(speeds))
    level = 0.0
    while not compared.over:
        level += generator.gauss(0, drift)
        rates = {name: math.exp(level + generator.gauss(math.log(speed), noise)) for name, speed in speeds.items()}
        compared.add(math.exp(level + generator.gauss(0, noise)), rates)
    return compared


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_a_value_that_is_not_faster_is_chosen_in_less_than_the_promised_share_of_comparisons(noise: float) -> None:
    comparisons = 300
    chosen = [
        compare_values({"same": 1.0, "slower": 0.97, "much": 0.5}, noise, seed).best() for seed in range(comparisons)
    ]
    wrong = sum(name is not None for name in chosen)
    assert (
        wrong <= (0.025 + 0.03) * comparisons
    )  # 2.5 % is promised; with 300 comparisons 5.5 % are 3 standard errors more
    assert "much" not in chosen


@pytest.mark.parametrize(("noise", "gain"), [(0.01, 1.05), (0.03, 1.15), (0.05, 1.3)])
def test_the_best_of_several_is_found(noise: float, gain: float) -> None:
    speeds = {"a": 0.8, "b": 1.0, "best": gain, "good": 1 + (gain - 1) / 3}
    winners = [compare_values(speeds, noise, seed, drift=0.03).best() for seed in range(100)]
    assert winners.count("best") >= 95


def test_a_disturbance_of_the_whole_machine_cancels_within_rounds() -> None:
    assert all(compare_values({"b": 1.0}, 0.005, seed, drift=0.3).best() is None for seed in range(50))


def test_slower_values_take_no_turns_after_the_first_look() -> None:
    compared = compare_values({"slow": 0.5, "fast": 1.02}, 0.01, 1)
    assert len(compared.rates["slow"]) == LOOKS[0] < len(compared.rates["fast"])
    assert compared.ratio("slow").high < 1  # type: ignore[union-attr]


def test_a_clear_winner_ends_the_compared_at_the_first_look() -> None:
    compared = compare_values({"fast": 1.5}, 0.01, 1)
    assert len(compared.base) == LOOKS[0]
    assert compared.best() == "fast"
    assert compared.over


def test_a_gain_too_small_to_matter_is_no_reason_for_a_change() -> None:
    compared = compare_values({"hardly": 1 + (WORTH - 1) / 4}, 0.0005, 3)
    assert compared.best() is None
    assert compared.ratio("hardly").low > 1  # type: ignore[union-attr]  # certainly faster, and yet not worth it


def test_the_compared_is_judged_at_looks_only() -> None:
    compared = ComparedValues(["b"])
    for _ in range(LOOKS[0] - 1):
        compared.add(1.0, {"b": 0.1 + 0.01 * len(compared.base)})
    assert compared.open == ["b"]
    compared.add(1.0, {"b": 0.1})
    assert compared.open == []


def test_a_compared_without_rounds_chooses_nothing() -> None:
    compared = ComparedValues(["b"])
    assert compared.best() is None
    assert compared.ratio("b") is None


def test_intervals_of_paired_ratios_hold() -> None:
    generator, held = random.Random(0), 0
    for _ in range(1000):
        base = [math.exp(generator.gauss(0, 0.05)) for _ in range(5)]
        own = [b * math.exp(generator.gauss(0.02, 0.03)) for b in base]
        ratio = paired_ratio(own, base)
        held += ratio.low <= math.exp(0.02) <= ratio.high
    assert 925 <= held <= 975


def test_two_rounds_have_no_interval() -> None:
    ratio = paired_ratio([1.0, 1.1], [1.0, 1.0])
    assert (ratio.low, ratio.high) == (0.0, math.inf)


def test_a_compared_whose_last_candidate_fails_in_a_round_that_is_judged_is_over() -> None:
    """It ended the whole search with an error about an empty sequence."""
    compared = ComparedValues(["fast"])
    for _ in range(LOOKS[0] - 1):
        compared.add(1.0, {"fast": 1.01})
    compared.open.remove("fast")
    compared.add(1.0, {})
    assert compared.over
    assert compared.best() is None or compared.rates["fast"]
