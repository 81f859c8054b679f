"""Studies as the page reads them."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.report.page.studies import open_study, open_study_result


def test_a_csv_gives_runs_sensors_and_locations(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    rows = [f"u{i},{100 + i},{1500 + i},c00{i % 2},{i}" for i in range(6)]
    path.write_text("\n".join(["uuid,perf_ms,freq,cabinet,node", *rows]) + "\n")
    study = open_study([path])
    assert (study.locations["u0"], study.locations["u3"]) == (("c000", "c000-0"), ("c001", "c001-3"))
    assert study.runs[0].sensors["freq"] == 1500
    assert study.median == 102.5
    assert study.result.devices_measured == 6


def test_a_damaged_result_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"result of a study is damaged: .*has no 'workload'"):
        open_study_result({"method": "vernier-study-analysis-1"})
