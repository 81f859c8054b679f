"""Studies as functions and objects of Python."""

import csv
import random
import sys
from pathlib import Path

import pytest

import vernier as v
from tests.conftest import REPO
from tests.lab.study.fleets import write_study
from vernier.lab.study import run as measuring
from vernier.lab.study.run import StudySettings


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Sixteen devices, five repeats; gpu03 is 8 % slow."""
    draws, path = random.Random(1), tmp_path / "fleet.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["serial", "time_ms"])
        for device in range(16):
            factor = 1.08 if device == 3 else 1.0
            rows.writerows([f"gpu{device:02}", 100 * factor * (1 + 0.003 * draws.gauss(0, 1))] for _ in range(5))
    return path


EXAMPLES = REPO / "docs" / "examples"
COLUMNS = {"step_time": "time_ms", "device": "serial"}


def test_a_study_names_the_slow_device(fleet: Path) -> None:
    study = v.study_analyze(fleet, columns=COLUMNS)
    assert study.slow == ("gpu03",)
    assert study.devices[0].device == "gpu03"
    assert study.devices[0].verdict == "slow"
    assert (len(study.table()), study.table()[0]["verdict"]) == (16, "certainly slow")
    assert repr(study) == "Study(16 devices, 80 runs, 1 to remove: gpu03)"
    assert "remove     gpu03" in str(study)
    html = study._repr_html_()
    assert "gpu15" in html
    assert "id=&#34;devices&#34;" in html


def test_columns_and_units_as_texts_or_mappings(fleet: Path) -> None:
    texts = v.study_analyze([str(fleet)], columns="step_time=time_ms,device=serial", units="ms")
    assert texts.analysis == v.study_analyze(fleet, columns=COLUMNS, units={"step_time": "ms"}).analysis
    assert v.study_analyze(fleet, columns={"speed": "time_ms", "device": "serial"}, units="img/s").slow == ()
    assert v.study_analyze(fleet, columns=COLUMNS, matter="10%").slow == ()


def test_what_is_no_study_is_explained(fleet: Path) -> None:
    with pytest.raises(v.ConfigError, match=r"Name it with columns=step_time=NAME,device=NAME") as refused:
        v.study_analyze(fleet)
    assert refused.value.works == [("columns", "step_time=NAME,device=NAME")]
    with pytest.raises(v.ConfigError, match=r"the unknown name 'devise'\. Did you mean device") as refused:
        v.study_analyze(fleet, columns={"step_time": "time_ms", "devise": "serial"})
    assert refused.value.given == {"columns": "step_time=time_ms,devise=serial"}
    with pytest.raises(v.ConfigError, match=r"has no column 'sreial'\. Did you mean serial"):
        v.study_analyze(fleet, columns={"step_time": "time_ms", "device": "sreial"})
    with pytest.raises(v.ConfigError) as refused:
        v.study_analyze([])
    assert refused.value.given == {"sources": None}
    with pytest.raises(v.ConfigError, match=r"/no/such\.csv does not exist"):
        v.study_analyze("/no/such.csv")


def test_a_study_as_a_table_of_pandas(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    study = v.study_analyze(fleet, columns=COLUMNS)
    assert study.to_pandas()["device"][0] == "gpu03"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(v.ConfigError, match="pip install"):
        study.to_pandas()


def test_the_old_name_warns_and_works(fleet: Path) -> None:
    with pytest.warns(FutureWarning, match=r"study_analyze\(\)"):
        assert v.study(fleet, columns=COLUMNS).slow == ("gpu03",)


def test_columns_and_units_as_the_reader_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('gpu,"time, us",watts\na,1,2000\nb,2,3000\n')
    columns = {"step_time": "time, us", "device": "gpu", "power": "watts"}
    study = v.study_analyze(path, columns=columns, units={"step_time": "us", "power": "mW"})
    assert [(d.device, d.median) for d in study.devices] == [("b", 2), ("a", 1)]
    assert (study.analysis.unit, study.analysis.runs) == ("us", 2)


def test_notes_are_in_the_words_of_python(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("uuid,step_time_ms,temp\na,1,900\nb,2,50\n")
    (note,) = (note for note in v.study_analyze(path).analysis.notes if "impossible value" in note)
    assert "another unit? units=" in note


def test_a_fleet_from_analysis_to_check(tmp_path: Path) -> None:
    assert v.study_analyze(EXAMPLES / "fleet.csv").devices[0].device == "sim07"
    baseline = v.study_baseline(EXAMPLES / "fleet.csv", out=tmp_path / "baseline.json")
    assert baseline.set_aside == ("sim07", "sim33", "sim51", "sim54")
    result = v.study_check(EXAMPLES / "new.csv", baseline=tmp_path / "baseline.json")
    assert [device.device for device in result.devices if not device.accepted] == ["sim0"]
    assert v.study_check(EXAMPLES / "new.csv", baseline=tmp_path / "baseline.json", matter="8%").accepted


def test_studies_are_merged(tmp_path: Path) -> None:
    machines = [write_study(tmp_path / name, {f"{name}0": [1.0, 1.1]}, 1) for name in ("a", "b")]
    merged = v.study_merge(machines, out=tmp_path / "both")
    assert (merged.path, merged.devices, merged.repeats) == (tmp_path / "both", 2, 4)


def test_a_design_takes_its_spreads_from_the_pilot_unless_they_are_given() -> None:
    pilot = EXAMPLES / "fleet.csv"
    answer = v.study_design(devices=6, find=0.2, pilot=pilot, spread="2%", repeat_time="2m", fleets=20)
    assert answer.spread == 0.02
    assert answer.noise == pytest.approx(0.008, rel=0.1)
    assert (answer.repeat_s, answer.proposed.fleets) == (120, 20)


def test_what_a_workload_trains_follows_from_the_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Chosen(Exception):
        pass

    def stop(settings: StudySettings, *_: object) -> None:
        raise Chosen(settings)

    monkeypatch.setattr(measuring, "collect", stop)
    with pytest.raises(Chosen) as chosen:
        v.study_run(device="cpu", batch=8, virtual=3, slow={1: 1.5}, pause="0s", out=tmp_path / "s")
    settings = chosen.value.args[0]
    assert (settings.slow, settings.pause_s) == (((1, 1.5),), 0)
    assert (settings.config["recipe"]["global_batch"], settings.config["recipe"]["data"]["source"]) == (8, "static")
    with pytest.raises(v.ConfigError) as refused:
        v.study_run(workload="sgemm", precision="bf16")
    assert refused.value.given == {"machine.precision": "bf16"}
    assert ("workload", "shapes") in refused.value.works
