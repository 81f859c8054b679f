import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.config import Config, Derived, Recipe, Schedule, check_recipe, derive
from vernier.errors import ConfigError
from vernier.optim.kinds.sgd import Sgd
from vernier.optim.schedules import learning_rate


def _derived(schedule: Schedule, *, lr: float = 2.048, steps_per_epoch: int = 10) -> Derived:
    config = Config(recipe=Recipe(global_batch=1, optim=Sgd(lr=lr), schedule=schedule))
    return derive(config, train_samples=steps_per_epoch)


def test_nvidia_table() -> None:
    """Per-epoch warm-up and cosine: e0 0.256, e7 2.048, e8 2.048, e45 1.180313, e89 0.000751."""
    schedule = Schedule(kind="cosine", epochs=90, warmup_epochs=8, unit="epoch", warmup_form="stairs")
    derived = _derived(schedule)
    published = {0: 0.256, 7: 2.048, 8: 2.048, 45: 1.180313, 89: 0.000751}
    for epoch, expected in published.items():
        for within in (0, 9):
            assert learning_rate(epoch * 10 + within, schedule, derived) == pytest.approx(expected, abs=1e-6)


def test_tensorflow_cosine_counts_from_the_first_step() -> None:
    schedule = Schedule(kind="cosine", epochs=90, warmup_epochs=8, origin="start")
    assert learning_rate(80, schedule, _derived(schedule, lr=1.0)) == pytest.approx(0.98063, abs=1e-5)


def test_step_schedule_drops_at_its_milestones() -> None:
    schedule = Schedule(kind="step", epochs=90, milestones=(30, 60, 80))
    derived = _derived(schedule, lr=0.1)
    rates = [learning_rate(e * 10, schedule, derived) for e in (0, 29, 30, 59, 60, 80, 89)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 1e-3, 1e-4, 1e-4])


def test_linear_and_polynomial_end_where_they_should() -> None:
    for kind, power, middle in (("linear", 1.0, 0.55), ("polynomial", 2.0, 0.325)):
        schedule = Schedule(kind=kind, epochs=10, power=power, end_lr=0.1)  # type: ignore[arg-type]
        derived = _derived(schedule, lr=1.0)
        assert learning_rate(0, schedule, derived) == pytest.approx(1.0)
        assert learning_rate(50, schedule, derived) == pytest.approx(middle)
        assert learning_rate(100, schedule, derived) == pytest.approx(0.1)


def test_per_step_warmup_is_a_straight_line() -> None:
    schedule = Schedule(kind="constant", epochs=10, warmup_epochs=2, warmup_start=0.1)
    derived = _derived(schedule, lr=1.0)
    assert [learning_rate(s, schedule, derived) for s in (0, 10, 20, 99)] == pytest.approx([0.1, 0.55, 1.0, 1.0])


def test_mlperf_polynomial_by_hand() -> None:
    """Habana's 8 x 256: 625 steps per epoch, so warm-up over 3 x 624 = 1872 steps and a decay over 33 x 624 + 1 =
    20593."""
    schedule = Schedule(kind="mlperf", epochs=35, warmup_epochs=3, decay_epochs=36, end_lr=1e-4)
    derived = _derived(schedule, lr=9.0, steps_per_epoch=625)
    by_hand = {
        0: 9 * 1 / 1872,
        935: 4.5,
        1871: 9.0,
        1872: 1e-4 + (9 - 1e-4) * (1 - 1 / 20593) ** 2,
        11000: 1e-4 + (9 - 1e-4) * (1 - (11001 - 1872) / 20593) ** 2,
        21874: 1e-4 + (9 - 1e-4) * (1 - (21875 - 1872) / 20593) ** 2,
    }
    for step, expected in by_hand.items():
        assert learning_rate(step, schedule, derived) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(21874, schedule, derived) == pytest.approx(0.00748, abs=1e-5)


def test_a_list_of_rates_changes_at_its_milestones() -> None:
    schedule = Schedule(kind="list", epochs=9, milestones=(1, 2, 8), shares=(0.125, 0.5, 1.0, 0.1), unit="epoch")
    derived = _derived(schedule, lr=0.8)
    rates = [learning_rate(s, schedule, derived) for s in (0, 9, 10, 20, 79, 80, 89)]
    assert rates == pytest.approx([0.1, 0.1, 0.4, 0.8, 0.8, 0.08, 0.08])
    with pytest.raises(ConfigError, match="one share more than milestones"):
        check_recipe(Recipe(schedule=Schedule(kind="list", milestones=(1,), shares=(1.0,))), detector=False)


def test_goyal_warmup_begins_at_the_rate_of_one_process() -> None:
    """1/n (e (n - 1) / w + 1) with n = 4 and w = 5, per epoch."""
    schedule = Schedule(kind="constant", epochs=10, warmup_epochs=5, warmup_start=1 / 4, unit="epoch")
    derived = _derived(schedule, lr=0.2)
    for epoch in range(5):
        expected = 0.2 * (1 / 4) * (epoch * 3 / 5 + 1)
        assert learning_rate(epoch * 10 + 9, schedule, derived) == pytest.approx(expected)
    assert learning_rate(50, schedule, derived) == pytest.approx(0.2)


def test_ffcv_ramps_up_for_two_epochs_and_down_to_zero() -> None:
    schedule = Schedule(kind="linear", epochs=16, warmup_epochs=2, warmup_start=1e-4)
    derived = _derived(schedule, lr=1.7)
    rates = [learning_rate(s, schedule, derived) for s in (0, 10, 20, 90, 159)]
    assert rates == pytest.approx([1.7e-4, 1.7 * (1e-4 + 0.9999 / 2), 1.7, 0.85, 1.7 * 0.1 / 14])


@given(
    st.sampled_from(["cosine", "step", "mlperf", "linear", "polynomial", "constant"]),
    st.sampled_from(["step", "epoch"]),
    st.floats(0.2, 20),
    st.floats(0, 1),
)
def test_rates_are_positive_and_never_above_the_peak(kind: str, unit: str, epochs: float, warm_share: float) -> None:
    warmup = epochs * warm_share
    schedule = Schedule(kind=kind, unit=unit, epochs=epochs, warmup_epochs=warmup)  # type: ignore[arg-type]
    derived = _derived(schedule, lr=1.0)
    rates = [learning_rate(s, schedule, derived) for s in range(derived.total_steps)]
    assert min(rates) >= 0
    assert max(rates) <= 1.0 + 1e-9
