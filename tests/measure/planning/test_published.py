import pytest

from vernier.measure.planning.published import PUBLISHED, check_rows, predict_published


def test_published_tables_are_predicted_with_nothing_fitted() -> None:
    """Nine of the rows agree within 5 %; the others are listed in docs/many-machines.md."""
    errors = {(row.what, row.devices): predict_published(row)[1] for row in PUBLISHED}
    near = {key: e for key, e in errors.items() if abs(e) < 5}
    assert len(near) == 9
    assert errors[("ResNet-50 V100 fp16, 2019", 8)] == pytest.approx(0.6, abs=0.1)
    assert errors[("ResNet-50 A100 AMP, 21.03", 8)] == pytest.approx(16.3, abs=0.5)
    assert errors[("ResNet-50 H100, batch 16 per device", 3584)] == pytest.approx(53, abs=1)
    assert all(e > -5 for e in errors.values())  # never far too low: what the model leaves out only costs time


def test_the_check_has_every_published_row_with_its_error() -> None:
    rows = check_rows()
    assert len(rows) == len(PUBLISHED)
    first = rows[0]
    assert (first.base, first.devices) == (1, 4)
    assert first.error_percent == pytest.approx(100 * (first.predicted_percent / first.published_percent - 1), abs=0.2)
