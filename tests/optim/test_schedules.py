import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.config import Config, Derived, Optim, Recipe, Schedule, derive
from vernier.optim.schedules import learning_rate


def _derived(schedule: Schedule, *, lr: float = 2.048, steps_per_epoch: int = 10) -> Derived:
    config = Config(recipe=Recipe(global_batch=1, optim=Optim(lr=lr), schedule=schedule))
    return derive(config, train_samples=steps_per_epoch)


def test_nvidia_table() -> None:
    """Per-epoch warm-up and cosine: e0 0.256, e7 2.048, e8 2.048, e45 1.180313, e89 0.000751."""
    schedule = Schedule(kind="cosine", epochs=90, warmup_epochs=8, unit="epoch")
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


@given(
    st.sampled_from(["cosine", "step", "linear", "polynomial", "constant"]),
    st.sampled_from(["step", "epoch"]),
    st.floats(0.2, 20),
    st.floats(0, 1),
)
def test_rates_are_positive_and_never_above_the_peak(kind: str, unit: str, epochs: float, warm_share: float) -> None:
    schedule = Schedule(kind=kind, unit=unit, epochs=epochs, warmup_epochs=epochs * warm_share)  # type: ignore[arg-type]
    derived = _derived(schedule, lr=1.0)
    rates = [learning_rate(s, schedule, derived) for s in range(derived.total_steps)]
    assert min(rates) >= 0
    assert max(rates) <= 1.0 + 1e-9
