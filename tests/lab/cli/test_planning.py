"""`vernier plan`: rows, and wrong input."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.refusals import config_error_of, names_given, what_works


def test_plan_prints_rows_that_double(vernier_here: Callable[..., Any]) -> None:
    done = vernier_here(
        "plan",
        "nvidia-resnet50-90e",
        "--bench",
        "2470",
        "--devices",
        "8..64",
        "--network",
        "dgx-a100",
        "--watts",
        "500",
        "--json",
    )
    assert done.code == 0, done.err
    rows = done.json()["rows"]
    assert [row["devices"] for row in rows] == [8, 16, 32, 64]
    assert all(a["img_per_s_total"] < b["img_per_s_total"] and a["hours"] > b["hours"] for a, b in pairwise(rows))
    assert done.json()["workload"]["gradient_bytes"] == 4 * 25_557_032
    assert rows[0]["kwh"] > 0


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("nvidia-resnet50-90e --bench 0", "bench", ""),
        ("nvidia-resnet50-90e --bench 457698000", "bench", ""),
        ("nvidia-resnet50-90e --bench 100 --devices 8..4", "devices", ""),
        ("nvidia-resnet50-90e --bench 100 --network dgx-a10", "network", ""),
        ("nvidia-resnet50-90e --bench 100 --batch 0", "batch", ""),
        ("nvidia-resnet50-90e --bench runs/x --batch 4", "batch", "weak=true"),
        ("habana-resnet50-sgd-1 --bench 100 --devices 512", "", "devices=256 weak=true"),
        ("nvidia-resnet50-90e --bench 100 --spread 1", "spread", ""),
        ("nvidia-resnet50-90e --bench 100 --watts nan", "watts", ""),
    ],
)
def test_what_cannot_be_planned_is_refused_by_its_option(words: str, given: str, works: str) -> None:
    error = config_error_of("plan", *words.split())
    assert (names_given(error), what_works(error)) == (given, works)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--bench 100", "RECIPE"),
        ("nvidia-resnet50-90e", "--bench"),
        ("nvidia-resnet50-90e --bench /nowhere", "/nowhere"),
        ("nvidia-resnet50-90e --bench 100 --out x", "--out"),
    ],
)
def test_what_does_not_fit_is_named(vernier_here: Callable[..., Any], words: str, named: str) -> None:
    done = vernier_here("plan", *words.split())
    assert (done.code, done.out) == (2, "")
    assert named in done.err


def test_the_exchange_of_gradients_is_that_of_the_settings(vernier_here: Callable[..., Any]) -> None:
    """On CPUs one ring over all processes, on accelerators sums within hosts first, which send less between hosts."""
    words = "plan resnet18 --bench 25 --devices 16 --network ethernet-10g --host-gb-s 0.01 --per-host 8"

    def planned(*settings: str) -> tuple[str, dict[str, Any], float]:
        more = [word for setting in settings for word in ("--set", setting)]
        text, document = (vernier_here(*words.split(), *more, *form) for form in ([], ["--json"]))
        assert (text.code, document.code) == (0, 0), text.err + document.err
        line = next(line for line in text.out.splitlines() if line.startswith("gradients"))
        return line, document.json()["workload"], document.json()["rows"][0]["communication_not_hidden_ms"]

    line, work, ring_ms = planned("machine.device=cpu")
    assert ("one ring over all processes (gloo)" in line, work["one_ring"]) == (True, True)
    line, work, by_host_ms = planned()
    assert ("within each host, then between hosts" in line, work["one_ring"]) == (True, False)
    assert by_host_ms < 0.7 * ring_ms
    line, work, _ = planned("machine.bucket_mb=10", "machine.reduction=ddp")
    assert "46.8 MB per step, buckets of 10 MiB" in line
    assert work["bucket_bytes"] == 10 << 20
    assert not work["one_ring"], "no kind of device was named: taken to be an accelerator"
    line, *_ = planned("machine.reduction=exact")
    assert "machine.reduction=exact, which takes longer, is not in the model" in line


def test_a_batch_that_does_not_divide_is_said(vernier_here: Callable[..., Any]) -> None:
    done = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--devices", "12")
    assert "(does not divide)" in done.out
    assert "2,048 images do not divide among 12 devices" in done.err
    assert "8 or 16 devices would do" in done.err
    assert "divide among" not in vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--devices", "8").err


def test_every_speed_of_several_devices_has_a_range(vernier_here: Callable[..., Any]) -> None:
    rows = vernier_here("plan", "nvidia-resnet50-90e", "--bench", "2470", "--devices", "2..64", "--json").json()["rows"]
    for row in rows:
        assert row["img_per_s_range"][0] < row["img_per_s_total"] < row["img_per_s_range"][1]
        assert row["efficiency_range"][0] < row["efficiency_percent"] < row["efficiency_range"][1]
        assert row["hours_range"][0] < row["hours"] < row["hours_range"][1]
