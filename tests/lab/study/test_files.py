"""The files of a study: written, read back, merged, and what a killed run leaves."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vernier.config import config_from_tree, to_dict
from vernier.config.migrations import migrated
from vernier.errors import ConfigError
from vernier.lab.study.files import (
    AGGREGATED_COLUMNS,
    ALL_COLUMNS,
    Repeat,
    StudyDir,
    merge,
    split_host,
)
from vernier.lab.study.records import StudyDevice, StudyMeta

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def _meta(*ids: str, **changes: object) -> StudyMeta:
    devices = tuple(StudyDevice(id=i, index=n, host="c196-031") for n, i in enumerate(ids))
    values = {
        "workload": "resnet50",
        "iterations": 3,
        "repeats": 2,
        "devices": devices,
        "order": (("a", 0),),
        **changes,
    }
    return StudyMeta(**values)  # type: ignore[arg-type]


def _repeat(device: str, repeat: int, seconds: tuple[float, ...] = (9.0, 1.0, 2.0, 4.0)) -> Repeat:
    telemetry = tuple({"seconds": t / 10, "clock_mhz": 1500 + t, "power_w": 200.5} for t in range(3))
    return Repeat(
        device=device, repeat=repeat, seconds=seconds, telemetry=telemetry, notes=("load 0.1",), started="2026"
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    study = StudyDir.create(tmp_path, _meta("GPU-1/2", "cpu:0"))
    repeats = [_repeat("GPU-1/2", 0), _repeat("GPU-1/2", 1), _repeat("cpu:0", 0)]
    for one in repeats:
        study.write_repeat(one)
    assert StudyDir.open(tmp_path).repeats() == repeats
    assert StudyDir.open(tmp_path).meta() == study.meta() == _meta("GPU-1/2", "cpu:0")


def test_the_tables_have_the_studys_columns_without_the_warm_up(tmp_path: Path) -> None:
    study = StudyDir.create(tmp_path, _meta("a", "b"))
    for device, repeat in (("a", 0), ("a", 1), ("b", 0)):
        study.write_repeat(_repeat(device, repeat))
    study.write_tables()
    with (tmp_path / "all_data.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert tuple(rows[0]) == ALL_COLUMNS
    first = rows[0]
    assert (first["cabinet"], first["node"], first["device"], first["uuid"]) == ("c196", "031", "0", "a")
    assert [float(first[c]) for c in ("max_iter_dur", "min_iter_dur", "med_iter_dur", "max_iter_dur_idx")] == [
        4,
        1,
        2,
        3,
    ]
    assert float(first["mean_iter_dur"]) == pytest.approx(7 / 3)
    assert (float(first["train_time"]), float(first["freq"]), first["temp"]) == (16.0, 1501.0, "")
    with (tmp_path / "aggregated_data.csv").open() as f:
        grouped = list(csv.DictReader(f))
    assert tuple(grouped[0]) == AGGREGATED_COLUMNS
    assert [(g["uuid"], g["repeats"]) for g in grouped] == [("a", "2"), ("b", "1")]


def test_a_repeat_without_its_last_file_is_not_finished(tmp_path: Path) -> None:
    study = StudyDir.create(tmp_path, _meta("a"))
    study.write_repeat(_repeat("a", 0))
    unfinished = study.write_repeat(_repeat("a", 1))
    (unfinished / "repeat.json").unlink()
    assert [r.repeat for r in study.repeats()] == [0]
    with study.locked():
        assert not unfinished.exists()
        study.write_repeat(_repeat("a", 1))
    assert [r.repeat for r in study.repeats()] == [0, 1]


def test_impossible_repeats_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="impossible"):
        _repeat("a", 0, (1.0, -1.0))
    with pytest.raises(ValueError, match="warm-up"):
        Repeat(device="a", repeat=0, seconds=(1.0,), warmup=1)
    study = StudyDir.create(tmp_path, _meta("a"))
    with pytest.raises(ConfigError, match="already holds"):
        StudyDir.create(tmp_path, _meta("a"))
    folder = study.write_repeat(_repeat("a", 0))
    with pytest.raises(ConfigError, match="measured once"):
        study.write_repeat(_repeat("a", 0))
    (folder / "iterations.csv").write_text("iteration,seconds\n0,\n")
    with pytest.raises(ConfigError, match="repeat-0 cannot be read"):
        study.repeats()
    with pytest.raises(ConfigError, match=r"no study\.json"):
        StudyDir.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="must differ"):
        StudyDir.create(tmp_path / "x", _meta("a/b", "a:b"))


def test_machines_are_merged_and_strangers_refused(tmp_path: Path) -> None:
    for name, ids, first in (("m1", ("a",), 8.0), ("m2", ("b", "a"), 9.0)):
        study = StudyDir.create(tmp_path / name, _meta(*ids))
        for device in ids:
            study.write_repeat(_repeat(device, 0, (first, 1.0, 2.0)))
    joined = merge([tmp_path / "m1", tmp_path / "m2"], tmp_path / "all")
    assert [(r.device, r.repeat) for r in joined.repeats()] == [("a", 0), ("a", 1), ("b", 0)]
    assert (tmp_path / "all" / "all_data.csv").is_file()
    with pytest.raises(ConfigError, match="the same data"):
        merge([tmp_path / "m1", tmp_path / "m1"], tmp_path / "no")
    StudyDir.create(tmp_path / "m3", _meta("c", workload="sgemm"))
    with pytest.raises(ConfigError, match="workload is resnet50 and sgemm"):
        merge([tmp_path / "m1", tmp_path / "m3"], tmp_path / "no")


def test_hosts_of_the_study() -> None:
    assert split_host("c196-031.longhorn") == ("c196", "031")
    assert split_host("gpu7") == ("", "gpu7")


def test_a_study_of_version_0_1_can_be_resumed(tmp_path: Path) -> None:
    """Its configuration has settings that were renamed since."""
    folder = shutil.copytree(GOLDEN / "0.1" / "study", tmp_path / "study")
    old = StudyDir.open(folder).meta()
    config = to_dict(config_from_tree(migrated("config", old.settings["config"], "study.json")))
    today = replace(old, settings={**old.settings, "config": config})
    assert len(StudyDir.resume_or_create(folder, today).repeats()) == 15
    with pytest.raises(ConfigError, match=r"settings\.batch \(4 there, 8 now\)"):
        StudyDir.resume_or_create(folder, replace(today, settings={**today.settings, "batch": 8}))


def test_a_study_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    StudyDir.create(tmp_path, _meta("a"))
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(ConfigError, match="newer version"):
        StudyDir.open(tmp_path).meta()
