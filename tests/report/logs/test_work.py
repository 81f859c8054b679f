"""What logs say about the work they measured."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.examples import RAN
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.work import work_of


def test_a_record_of_what_ran_says_all_of_it() -> None:
    work = work_of(RunLog(format="vernier", path=Path("x"), ran=RAN))
    assert work.values["batch"] == RAN.batch_per_device
    assert work.texts["image size"] == f"{RAN.image_px} px"


def test_logs_of_other_systems_say_some_of_it(real_data: Callable[[str], Path]) -> None:
    (ssd,) = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_pytorch" / "ssd" / "result_0.txt")
    assert work_of(ssd).values == {"kind": "train", "network": "ssd", "global batch": 912}
    assert work_of(replace(ssd, devices=None)).texts["devices"] == "devices: not in the log"
    assert work_of(RunLog(format="unheard-of", path=Path("x"))).values == {}
