"""Values in files of others: what is taken, and what is refused with a reason."""

from pathlib import Path

import pytest

from vernier.data.sources.values import class_label, parse_json, positive_size, read_lines, whole_number
from vernier.errors import ConfigError


def test_whole_numbers_may_be_text_or_floats_without_a_fraction() -> None:
    assert [whole_number(value) for value in (7, "7", 7.0, True, -3)] == [7, 7, 7, 1, -3]


@pytest.mark.parametrize(
    "value", [None, "seven", 7.5, float("nan"), float("inf"), [7], (1, 2), b"x", 1 << 60, "9" * 5000, 10**400]
)
def test_other_values_are_a_value_error_with_a_short_reason(value: object) -> None:
    with pytest.raises(ValueError, match=r"not a whole number|out of range") as error:
        whole_number(value)
    assert len(str(error.value)) < 150


@pytest.mark.parametrize("value", [-1, 1_000_000, 3_000_000_000])
def test_class_numbers_have_a_range(value: int) -> None:
    with pytest.raises(ValueError, match="classes count from 0 to 999,999"):
        class_label(value)


def test_sizes_are_positive_or_unknown() -> None:
    assert positive_size(4, "3") == (4, 3)
    assert positive_size(None, 3) is positive_size(0, 3) is positive_size(-4, 3) is None


def test_deep_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


def test_a_file_of_lines_is_text_or_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\n\n two \n".encode())
    assert read_lines(tmp_path / "a") == ("one", "two")
    with pytest.raises(ConfigError, match=r"Cannot read .*: Is a directory"):
        read_lines(tmp_path)
