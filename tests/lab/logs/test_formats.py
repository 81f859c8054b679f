"""Log formats plug in: Vernier's own are found as those of outside packages are, and tried in order."""

from pathlib import Path

import pytest

from vernier.lab.logs import formats
from vernier.lab.logs.formats import LogFormat, reader_of
from vernier.lab.logs.model import RunLog

DLLOGGER = 'DLLL {"timestamp": "1.0", "step": [0, 1], "data": {"train.compute_ips": 100.0}}\n'


def test_the_formats_of_compat_are_found_through_their_entry_points() -> None:
    found = formats.formats()
    assert {"mllog", "dllogger", "raport"} <= set(found)
    assert {name for name, each in found.items() if each.write} >= {"mllog", "dllogger", "raport"}


def test_a_text_is_read_by_the_format_that_recognizes_it() -> None:
    assert reader_of(DLLOGGER) is formats.formats()["dllogger"].read
    assert reader_of("nothing that anybody knows") is None
    assert reader_of('{"iter": {}, "epoch": {}}') is None
    assert reader_of('{"iter": {}, "epoch": {}}', one_document=True) is formats.formats()["raport"].read


def test_a_format_of_an_outside_package_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = RunLog(path=tmp_path / "x", format="mine")
    mine = LogFormat(reads="my logs", recognizes=lambda text: text.startswith("MINE"), read=lambda path, text: log)
    monkeypatch.setattr(formats, "load_group", lambda group, kind: {"mine": mine})
    reader = reader_of("MINE 1 2 3")
    assert reader is not None
    assert reader(tmp_path, "") is log
