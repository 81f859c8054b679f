"""Device studies on the page: how they are read, and their section about outliers and correlations."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.page.conftest import text_of
from vernier.errors import ConfigError
from vernier.lab.page.studies import Study, open_study
from vernier.lab.study.files import Repeat, StudyDir
from vernier.lab.study.records import StudyDevice, StudyMeta
from vernier.records.codec import encode
from vernier.report.page.build import Page
from vernier.report.page.collect import collect

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "0.1"
PageOf = Callable[..., Page]


def test_a_csv_gives_runs_sensors_and_locations(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    rows = [f"u{i},{100 + i},{1500 + i},c00{i % 2},{i}" for i in range(6)]
    path.write_text("\n".join(["uuid,perf_ms,freq,cabinet,node", *rows]) + "\n")
    study = open_study([path])
    assert (study.locations["u0"], study.locations["u3"]) == (("c000", "c000-0"), ("c001", "c001-3"))
    assert study.runs[0].sensors["freq"] == 1500
    assert study.median == 102.5
    assert study.result.devices_measured == 6


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "analysis.json"
    path.write_text('{"method": "vernier-study-analysis-1"}')
    with pytest.raises(ConfigError, match=r"result of a study is damaged: .*has no 'workload'"):
        collect([path])


def test_a_study_of_simulated_devices_is_marked(tmp_path: Path, page_of: PageOf) -> None:
    devices = tuple(StudyDevice(id=f"sim-{i}", index=i, host="c001-002", slowdown=1.0) for i in range(6))
    meta = StudyMeta(workload="sgemm", iterations=5, repeats=3, devices=devices, simulated=True)
    study = StudyDir.create(tmp_path / "study", meta)
    telemetry = ({"t_s": 0.1, "power_w": 200.0, "temperature_c": 60.0, "clock_mhz": 1400.0},)
    for number, device in enumerate(devices):
        for repeat in range(3):
            seconds = tuple((1.3 if number == 3 else 1.0) * (1 + 0.001 * (repeat + number)) for _ in range(5))
            study.write_repeat(Repeat(device=device.id, repeat=repeat, seconds=seconds, telemetry=telemetry))
    (subject,) = collect([tmp_path / "study"])
    assert isinstance(subject, Study)
    assert "the devices of this study are simulated" in page_of(tmp_path / "study").html()
    assert subject.result.devices[0].device == "sim-3"
    assert {cabinet for cabinet, _ in subject.locations.values()} == {"c001"}
    assert len(subject.telemetry) == 6
    saved = tmp_path / "analysis.json"
    saved.write_text(json.dumps(encode(subject.result)))
    (again,) = collect([saved])
    assert isinstance(again, Study)
    assert again.result.devices[0].device == "sim-3"


def test_a_study_names_outliers_and_correlations(real_data: Callable[[str], Path], page_of: PageOf) -> None:
    page = page_of(real_data("gpu-variability") / "resnet-longhorn-agg.csv")
    assert [s.name for s in page.sections] == ["glance", "devices"]
    names = set(page.figures)
    assert {"cabinet-0", "ranked-0", "against-freq-0", "against-power-0", "against-temp-0", "correlation-0"} <= names
    ranked = page.figures["ranked-0"].rows
    certain = [row[1] for row in ranked if row[5] == "stands out as slow, as its whole host"]
    assert sorted(certain) == ["c008-8-0", "c008-8-1", "c008-8-2", "c008-8-3"]
    assert "slow: no device" in text_of(str(page.sections[1].html))
    diagonal = [r[2] for r in page.figures["correlation-0"].rows if r[0] == r[1]]
    assert all(abs(v - 1) < 1e-9 for v in diagonal)


def test_a_study_of_version_0_1_shows_its_telemetry_and_its_simulated_devices(page_of: PageOf) -> None:
    page = page_of(GOLDEN / "study")
    assert {"device-0", "ranked-0", "study-util_pct-0"} <= set(page.figures)
    html = text_of(str(next(s for s in page.sections if s.name == "devices").html))
    assert "an ordinary device is called slow" in html
    assert "slow: no device" in html
