"""Which column holds what: names of pairs, and what is said where a column is missing."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.reading.columns import ColumnOptions, find_layout, parse_pairs, parse_units, with_known_names


def test_pairs() -> None:
    names = ("step_time", "device")
    assert parse_pairs("step_time=a, device=b", "columns", names) == {"step_time": "a", "device": "b"}
    for other in ("speed", "perf", "performance"):
        assert parse_pairs(f"{other}=a", "columns", names) == {"step_time": "a"}
    assert parse_pairs("step_time=time, ms,device=b", "columns", names) == {"step_time": "time, ms", "device": "b"}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_pairs("step_time", "columns", names)
    with pytest.raises(ConfigError, match="Did you mean step_time") as refused:
        parse_pairs("steptime=x", "columns", names)
    assert refused.value.given == {"columns": "steptime=x"}


def test_a_unit_alone_is_that_of_the_step_time() -> None:
    assert parse_units("ns") == {"step_time": "ns"}
    assert parse_units("speed=img/s,power=mW") == {"step_time": "img/s", "power": "mW"}
    assert parse_units(None) == {}
    with pytest.raises(ConfigError, match="the unknown name 'watts'"):
        parse_units("watts=mW")


def test_columns_are_named_in_any_case() -> None:
    options = ColumnOptions(columns={"step_time": "TIME_MS", "device": "gpu"})
    layout = find_layout(Path("x.csv"), [{"Time_ms": 1.0, "GPU": "a"}], options)
    assert layout.columns == {"step_time": "Time_ms", "device": "GPU"}


def test_names_that_differ_by_case_only_stay_as_they_are() -> None:
    rows = [{"Perf": 1, "perf": 2, "UUID": "a"}]
    assert with_known_names(rows) == [{"Perf": 1, "perf": 2, "uuid": "a"}]


def test_a_file_with_one_column_is_asked_for_its_separator() -> None:
    with pytest.raises(ConfigError, match=r"another separator between them. Those that are read: comma, semicolon"):
        find_layout(Path("x.csv"), [{"uuid:perf": "a:1"}], ColumnOptions())


def test_seconds_that_outlast_the_training_are_another_unit() -> None:
    row = {"uuid": "a", "med_iter_dur": 110.0, "train_time": 57.1}
    layout = find_layout(Path("x.csv"), [row], ColumnOptions())
    assert layout.unit == "ms"
    assert "med_iter_dur is taken to be in ms" in (layout.note or "")
    assert find_layout(Path("x.csv"), [{**row, "med_iter_dur": 0.11}], ColumnOptions()).unit == "s"
