"""Measured rates beside published ones, for devices by the names that their drivers give them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import TINY, Done, only_run
from tests.lab.bench.sample_rounds import rounds
from vernier.compat.published.standing import published_device
from vernier.devices.cpu import Cpu
from vernier.lab.bench.rows import pool_rounds
from vernier.lab.bench.table import notes
from vernier.measure.published import published_speeds, rates, speed_lines
from vernier.records.bench import ArmLabels, StepResult, StepRow
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir

V100 = WhatRan(
    kind="train",
    network="resnet50",
    parameters=25_557_032,
    gmac=4.089,
    image_px=224,
    classes=1000,
    batch_per_device=256,
    devices=8,
    data="/data/imagenet",
    precision="fp16",
    device="cuda (Tesla V100-SXM2-16GB)",
)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("Tesla V100-SXM2-16GB", "V100 16 GB"),
        ("Tesla V100-SXM3-32GB", "V100 32 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("Tesla T4", "T4"),
        ("HL-205", "Gaudi"),
        ("HL-225", "Gaudi 2"),
        ("GAUDI2", "Gaudi 2"),
        ("GAUDI", "Gaudi"),
        ("Tesla V100-PCIE-16GB", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("NVIDIA H100 80GB HBM3", None),
        ("NVIDIA RTX T4000", None),
        ("GAUDI3", None),
        ("AMD EPYC 7763", None),
    ],
)
def test_a_device_is_the_published_one_by_its_drivers_name(name: str, device: str | None) -> None:
    assert published_device(name) == device


def test_every_published_device_of_a_rate_can_be_recognised() -> None:
    names = ("V100-SXM2-16GB", "V100-SXM3-32GB", "A100-SXM4-80GB", "T4", "HL-205")
    assert {rate.device for rate in rates()} == {published_device(name) for name in names}


def test_eight_v100_against_both_of_nvidias_tables() -> None:
    later, first = published_speeds(V100, 6000.0)
    assert (first.images_per_s_total, first.devices, first.batch_per_device) == (5815.8, 8, 256)
    assert first.times_published == pytest.approx(6000 / 5815.8)
    assert later.images_per_s_total == 8322
    assert first.differs == later.differs == ()
    line = speed_lines([first])[0]
    assert line.startswith("1.032 times the published rate per device: 5,815.8 img/s on 8 x V100 16 GB, batch 256 per")
    assert "May 2019, batch not stated; that of its training scripts" in line


def test_what_was_not_the_same_is_said_and_rates_are_compared_per_device() -> None:
    ran = replace(V100, devices=2, batch_per_device=64, precision="bf16", data="synthetic")
    _, first = published_speeds(ran, 1400.0)
    assert (first.devices, first.times_published) == (1, pytest.approx(700 / 747.3))
    assert first.differs == (
        "devices 1 -> 2",
        "batch per device 256 -> 64",
        "fp16 -> bf16",
        "images of the publication -> synthetic",
    )


def test_inference_comes_with_latencies() -> None:
    speeds = published_speeds(replace(V100, kind="infer", devices=1, batch_per_device=1), 80.0)
    assert [(s.images_per_s_total, s.latency_ms) for s in speeds] == [(78, 12.78), (131.8, None)]
    assert "latency 12.78 ms (95 %: 13.27, 99 %: 14.36)" in speed_lines(speeds)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"device": "cuda (Tesla V100-PCIE-16GB)"},
        {"network": "resnet50, width 32"},
        {"image_px": 176},
        {"start_px": 128},
        {"precision": "tf32"},
        {"kind": "eval"},
        {"smoke": True},
    ],
)
def test_another_device_network_size_or_precision_is_not_compared(changed: dict[str, object]) -> None:
    assert published_speeds(replace(V100, **changed), 6000.0) == ()  # type: ignore[arg-type]
    assert published_speeds(None, 6000.0) == ()


def test_a_training_says_how_it_stands_on_a_device_with_a_simulated_name(
    vernier_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shapes: Path
) -> None:
    """A small network instead of ResNet-50, with a rate as published for it: all the rest is as on the device."""
    monkeypatch.setattr(Cpu, "identity", lambda self: [DeviceInfo(index=0, name="Tesla V100-SXM2-16GB")])
    (real,) = [r for r in rates() if r.images_per_s == 363.1]
    small = replace(real, model="resnet8-small, width 8", image_px=32)
    monkeypatch.setattr("vernier.compat.published.standing.rates", lambda: (small,))
    words = ("--data", str(shapes), "--max-steps", "6", "--train-only", "--no-tensorboard", "--out", str(tmp_path))
    done = vernier_here("train", *words, *TINY)
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("published ")]
    summary = RunDir.open(only_run(tmp_path)).status().summary
    assert summary is not None
    assert summary.training is not None
    (speed,) = summary.published_speeds or ()
    assert speed.times_published == pytest.approx(summary.training.images_per_s_total / 363.1)
    assert speed.differs == ("batch per device 128 -> 16",)
    assert f"{speed.times_published:.3f} times the published rate per device: 363.1 img/s on 1 x V100 16 GB" in line


def test_a_benchmark_says_how_it_stands_on_a_device_with_a_simulated_name() -> None:
    """Eight devices that take 0.35 s for 2,048 images."""
    arms = [
        replace(r, result=replace(r.result, ran=V100))
        for r in rounds("b256", [0.35] * 30, images=2048, devices=8)
        if isinstance(r.result, StepResult)
    ]
    row = pool_rounds("b256", ArmLabels(batch=256, procs=8), arms)
    assert isinstance(row, StepRow)
    assert [s.times_published for s in row.published_speeds or ()] == pytest.approx(
        [2048 / 0.35 / 8322, 2048 / 0.35 / 5815.8]
    )
    assert any("b256: 1.006 times the published rate per device: 5,815.8 img/s" in note for note in notes([row]))
    assert encode(row)["published_speeds"][1]["images_per_s_total"] == 5815.8
