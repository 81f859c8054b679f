"""What logs say about the work they measured, which differences make it other work, and the step times compared."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.examples import RAN as RAN_ON_TWO
from tests.lab.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog, StepRecord
from vernier.lab.logs.reading import open_logs
from vernier.lab.logs.work import describe_work, different_work, other_differences, trace_of, unknown_work, work_of

RAN = replace(RAN_ON_TWO, devices=1)


def _log(**changes: Any) -> RunLog:
    return RunLog(format="vernier", path=Path("x"), ran=replace(RAN, **changes))


def test_a_record_of_what_ran_says_all_of_it() -> None:
    work = work_of(RunLog(format="vernier", path=Path("x"), ran=RAN_ON_TWO))
    assert work.values["batch"] == RAN_ON_TWO.batch_per_device
    assert work.texts["image size"] == f"{RAN_ON_TWO.image_px} px"


def test_logs_of_other_systems_say_some_of_it(real_data: Callable[[str], Path]) -> None:
    (ssd,) = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_pytorch" / "ssd" / "result_0.txt")
    assert work_of(ssd).values == {"kind": "train", "network": "ssd", "global batch": 912}
    assert work_of(replace(ssd, devices=None)).texts["devices"] == "devices: not in the log"
    assert work_of(RunLog(format="unheard-of", path=Path("x"))).values == {}


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
    assert describe_work(work_of(dllogger), ["classes", "batch"]) == "trains resnet50, 1,000 classes, batch 128"
    assert different_work(work_of(resnet), work_of(dllogger)) == []
    assert unknown_work(work_of(resnet), work_of(dllogger)) == ["classes", "batch"]


def test_a_log_that_says_nothing_can_only_be_taken_as_it_is() -> None:
    silent = work_of(RunLog(format="unheard-of", path=Path("x")))
    assert different_work(silent, work_of(_log())) == []
    assert "network" in unknown_work(silent, work_of(_log()))
    assert describe_work(silent, []) == "trains a network that is not in the log"


def test_the_trace_leaves_out_the_warm_up_and_counts_samples(run: RunLog) -> None:
    assert not run.steps[0].steady
    assert len(trace_of(run).step_s) == len(run.steady_steps) == 299
    assert trace_of(run).window.samples_per_s == pytest.approx(32 * 299 / sum(TIMES[1:]))


def test_a_trace_of_windows_has_the_speed_of_all_steps_and_one_sample_per_window(windows: RunLog) -> None:
    assert not windows.has_single_steps
    assert (len(windows.steps), len(windows.steady_steps)) == (30, 29)
    trace = trace_of(windows)
    assert (len(trace.step_s), trace.steps) == (29, 290)
    assert trace.window.samples_per_s == pytest.approx(32 * 290 / sum(TIMES[10:]))


def test_a_log_without_samples_cannot_be_compared() -> None:
    steps = (StepRecord(epoch=0, step=0, seconds=0.1),)
    with pytest.raises(ConfigError, match="number of samples per step"):
        trace_of(RunLog(format="raport", path=Path("x"), steps=steps))
