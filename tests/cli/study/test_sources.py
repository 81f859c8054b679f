"""What the commands of a study read."""

from pathlib import Path

import pytest

from vernier.cli.study.sources import read_sources
from vernier.errors import ConfigError


def test_flags_become_options_of_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("gpu,time,watts\na,1,2000\na,1,2000\nb,2,3000\n")
    table = read_sources((str(path),), "step_time=time,device=gpu,power=watts", "step_time=us,power=mW", True)
    assert [(r.device, r.value, r.sensors["power"]) for r in table.rows] == [("a", 1, 2.0), ("b", 2, 3.0)]
    assert table.unit == "us"


def test_nothing_to_read_is_said() -> None:
    with pytest.raises(ConfigError, match="Name what to read: study directories, CSV files, logs"):
        read_sources((), None, None)
