"""What logs say about the work they measured, and which differences make it other work."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.examples import RAN as RAN_ON_TWO
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.work import different_work, other_differences, unknown_work, work_of

RAN = replace(RAN_ON_TWO, devices=1)


def _log(**changes: Any) -> RunLog:
    return RunLog(format="vernier", path=Path("x"), ran=replace(RAN, **changes))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"kind": "infer"}, ["kind"]),
        ({"network": "resnet50, width 32"}, ["network"]),
        ({"image_px": 64}, ["image size"]),
        ({"start_px": 160}, ["image size"]),
        ({"batch_per_device": 8}, ["batch"]),
        ({"precision": "bf16", "mode": "compile", "device": "cuda (A GPU)", "threads": 1, "data": "photos"}, []),
        ({"torch": "2.9", "vernier": "0.1.0", "date": "2020-01-01", "devices": 8, "smoke": True}, []),
    ],
)
def test_what_makes_it_other_work(changes: dict[str, Any], parts: list[str]) -> None:
    a, b = work_of(_log()), work_of(_log(**changes))
    assert different_work(a, b) == parts
    assert unknown_work(a, b) == []


def test_another_number_of_classes_matters_where_the_head_does() -> None:
    few = {"classes": 10, "parameters": 23_528_522, "gmac": 4.087}
    assert different_work(work_of(_log()), work_of(_log(**few))) == []
    assert other_differences(work_of(_log()), work_of(_log(**few))) == {"classes": ("1,000 classes", "10 classes")}
    assert different_work(work_of(_log()), work_of(_log(classes=10, gmac=3.9))) == ["classes"]


def test_what_may_differ_is_in_words() -> None:
    words = other_differences(
        work_of(_log()), work_of(_log(precision="bf16", data="photos", feeding="4 loader threads"))
    )
    assert words == {
        "data": ("synthetic, random pixels from a pool in memory", "photos, 4 loader threads"),
        "precision": ("fp32", "bf16"),
    }


def test_classes_that_an_old_benchmark_did_not_record_are_not_known() -> None:
    old = work_of(_log(classes=0))
    assert different_work(work_of(_log()), old) == []
    assert unknown_work(work_of(_log()), old) == ["classes"]


def test_logs_of_other_systems(real_data: Callable[[str], Path]) -> None:
    mlperf = real_data("mlperf-v0.7")
    (ssd,) = open_logs(mlperf / "dgxa100_ngc20.06_pytorch" / "ssd" / "result_0.txt")
    (resnet,) = open_logs(mlperf / "dgxa100_ngc20.06_mxnet" / "resnet" / "result_0.txt")
    (dllogger,) = open_logs(real_data("dllogger") / "raport.json")
    assert (ssd.devices, resnet.devices, dllogger.devices) == (8, 8, 8)
    assert work_of(ssd).values == {"kind": "train", "network": "ssd", "global batch": 912}
    assert work_of(replace(ssd, devices=None)).texts["devices"] == "devices: not in the log"
    assert different_work(work_of(ssd), work_of(resnet)) == ["network", "global batch"]
    assert work_of(dllogger).describe(["classes", "batch"]) == "trains resnet50, 1,000 classes, batch 128"
    assert different_work(work_of(resnet), work_of(dllogger)) == []
    assert unknown_work(work_of(resnet), work_of(dllogger)) == ["classes", "batch"]


def test_a_log_that_says_nothing_can_only_be_taken_as_it_is() -> None:
    silent = work_of(RunLog(format="unheard-of", path=Path("x")))
    assert different_work(silent, work_of(_log())) == []
    assert "network" in unknown_work(silent, work_of(_log()))
    assert silent.describe([]) == "trains a network that is not in the log"
