"""The loads that benchmarks step through."""

from pathlib import Path

from tests.tiny_training import tiny_config
from vernier.config import override
from vernier.engine.measured.workloads import TrainingLoad


def test_half_precision_is_measured_with_its_loss_scaling(shapes: Path) -> None:
    """Elsewhere the benchmark of fp16 training had no loss scaler: it was not the training that people run."""
    config = override(override(tiny_config(shapes), "machine.precision", "fp16"), "machine.allow_slow", True)
    load = TrainingLoad(config)
    try:
        load.step()
        state = load.job.step.scaler.state()
        assert state is not None
        assert state["_growth_tracker"] == 1  # it has seen the step
    finally:
        load.close()
