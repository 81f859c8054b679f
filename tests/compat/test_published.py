"""Published speeds: tables against the documents' own, copied here as printed; comparison with measured rates."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import TINY, Done, only_run
from tests.lab.bench.sample_rounds import rounds
from vernier import recipes as book
from vernier.compat.published import PublishedRate, PublishedTime, Source, published_device, rate_cells, rates, times
from vernier.devices.cpu import Cpu
from vernier.lab.bench.rows import pool_rounds
from vernier.lab.bench.table import notes
from vernier.lab.records.bench import ConfigurationLabels, StepResult, StepRow
from vernier.measure.published import published_rows, published_speeds, speed_lines
from vernier.models import names
from vernier.records.codec import encode
from vernier.records.environment import DeviceInfo
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir

# GPUs, mixed precision img/s, FP32 img/s, mixed precision speedup: NVIDIA's README of May 2019.
NVIDIA_TRAINING = """
DGX-1V  1   747.3   363.1   2.06
DGX-1V  4   2886.9  1375.5  2.1
DGX-1V  8   5815.8  2857.9  2.03
DGX-2V  16  12086.1 5578.2  2.16
"""
# Batch size, mixed precision img/s, FP32 img/s: the same README, V100 16G on DGX1V.
NVIDIA_INFERENCE = """
1 131.8 134.9
2 248.7 260.6
4 486.4 425.5
8 908.5 783.6
16 1370.6 998.9
32 2287.5 1092.3
64 2476.2 1166.6
128 2615.6 1215.6
256 2696.7 N/A
"""
# GPUs, mixed precision and FP32 training time for 90 epochs: the same README.
NVIDIA_HOURS = """
DGX-1V 1  46 90
DGX-1V 4  14 26
DGX-1V 8  8  14
DGX-2V 2  24 45
DGX-2V 8  8  13
DGX-2V 16 4  7
"""
ROUNDED = pytest.approx


def _lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def _rate(source: str, **fields: object) -> float:
    (row,) = [
        r
        for r in rates()
        if r.source.citation.startswith(source) and all(getattr(r, name) == value for name, value in fields.items())
    ]
    return row.images_per_s


SEED = "NVIDIA DeepLearningExamples, PyTorch/Classification/RN50v1.5"
HABANA = "Habana Model-References, PyTorch ResNet at 0.13.0"


@pytest.mark.parametrize("line", _lines(NVIDIA_TRAINING), ids=" ".join)
def test_training_speeds_of_nvidias_document(line: list[str]) -> None:
    system, devices, mixed, fp32, speedup = line
    ours = [_rate(SEED, what="train", system=system, devices=int(devices), precision=p) for p in ("mixed", "fp32")]
    assert ours == [float(mixed), float(fp32)]
    assert ours[0] / ours[1] == ROUNDED(float(speedup), abs=0.011)  # the document's own column


@pytest.mark.parametrize("line", _lines(NVIDIA_INFERENCE), ids=" ".join)
def test_inference_speeds_of_nvidias_document(line: list[str]) -> None:
    batch, mixed, fp32 = line
    assert _rate(SEED, what="infer", device_batch=int(batch), precision="mixed") == float(mixed)
    if fp32 != "N/A":
        assert _rate(SEED, what="infer", device_batch=int(batch), precision="fp32") == float(fp32)


@pytest.mark.parametrize("line", _lines(NVIDIA_HOURS), ids=" ".join)
def test_training_times_of_nvidias_document(line: list[str]) -> None:
    system, devices, *hours = line
    rows = [
        t for t in times() if t.source.citation.startswith(SEED) and (t.system, t.devices) == (system, int(devices))
    ]
    assert {t.precision: t.hours for t in rows} == dict(zip(("mixed", "fp32"), map(float, hours), strict=True))
    assert all(t.approximate and t.epochs == 90 for t in rows)


def test_speeds_of_habanas_document() -> None:
    """1-card, BS=256, bf16: 679 ips; 1-card, BS=128, fp32: 304 ips; 8-cards, BS=256, bf16: 601 ips (each), 88.5 %."""
    one = _rate(HABANA, devices=1, device_batch=256, precision="mixed", arithmetic="bf16")
    eight = _rate(HABANA, devices=8, device_batch=256, precision="mixed")
    assert (one, _rate(HABANA, devices=1, device_batch=128, precision="fp32"), eight / 8) == (679, 304, 601)
    assert eight / 8 / one == ROUNDED(0.885, abs=0.0005)


def test_speeds_of_the_page_that_habanas_tensorflow_documents_link_to() -> None:
    page = "Habana, SynapseAI 1.0.0"
    assert _rate(page, model="resnext101-32x4d", devices=1) == 650
    assert _rate(page, model="resnext101-32x4d", devices=8) == 4656
    assert _rate(page, model="ssd300-resnet34", devices=1) == 470
    hours = {(t.model, t.devices): t.hours for t in times() if t.source.citation.startswith(page)}
    assert hours["resnext101-32x4d", 8] == ROUNDED(6 + 56 / 60, abs=1e-4)
    assert hours["ssd300-resnet34", 1] == ROUNDED(3 + 35 / 60, abs=1e-4)
    assert hours["ssd300-resnet34", 8] == ROUNDED(35 / 60, abs=1e-4)


def test_later_tables_have_latencies() -> None:
    """The ends of NVIDIA's table for ResNet-50 in mixed precision on a V100."""
    rows = [
        r for r in rates() if r.latency_ms and (r.model, r.device, r.precision) == ("resnet50", "V100 16 GB", "mixed")
    ]
    ends = [(r.device_batch, r.images_per_s, r.latency_ms, r.latency_ms_p95, r.latency_ms_p99) for r in rows]
    assert ends[0] == (1, 78, 12.78, 13.27, 14.36)
    assert ends[-1] == (256, 3382, 84.14, 75.3, 80.08)


@pytest.mark.parametrize(
    "rate", [r for r in rates() if r.latency_ms], ids=lambda r: f"{r.model}-{r.device}-{r.device_batch}"
)
def test_a_latency_and_its_rate_belong_together(rate: PublishedRate) -> None:
    """Batch over latency is the rate; NVIDIA's include start-up in one of them, so only within 15 %."""
    assert rate.latency_ms is not None
    assert 1000 * rate.device_batch / rate.latency_ms == ROUNDED(rate.images_per_s, rel=0.15)


def test_every_figure_names_a_network_a_source_and_a_recipe() -> None:
    rows: tuple[PublishedRate | PublishedTime, ...] = (*rates(), *times())
    assert {row.model for row in rows} <= set(names())
    assert all(row.source.citation and row.source.year > 2018 for row in rows)
    assert [row for row in rows if not any(row.belongs_to(name) for name in book.names())] == []


def test_no_figure_is_there_twice() -> None:
    keys = [
        (r.source.citation, r.note, r.what, r.model, r.device, r.devices, r.device_batch, r.precision) for r in rates()
    ]
    assert len(keys) == len(set(keys))


def test_figures_of_a_recipe() -> None:
    rows = published_rows("habana-tf-resnext101-90e")
    assert [(r.record.devices, r.record.images_per_s) for r in rows if r.kind == "speeds"] == [(1, 650), (8, 4656)]
    assert [(r.record.devices, round(r.record.hours, 2)) for r in rows if r.kind == "times"] == [(8, 6.93)]
    assert published_rows("shapes-quick") == []


RATE = PublishedRate(
    model="resnet50",
    device="Abacus",
    recipes=("mine-*",),
    source=Source(citation="a page", year=2026),
    what="train",
    image_px=224,
    device_batch=64,
    images_per_s=800.0,
    devices=4,
)


def test_a_rate_belongs_to_the_recipes_of_its_pattern() -> None:
    assert RATE.belongs_to("mine-90e")
    assert not RATE.belongs_to("shapes-quick")


def test_a_rate_is_shown_per_device_too() -> None:
    assert rate_cells(RATE)["per_device"] == 200.0


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
    monkeypatch.setattr("vernier.compat.published.rates", lambda: (small,))
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
    configurations = [
        replace(r, result=replace(r.result, ran=V100))
        for r in rounds("b256", [0.35] * 30, images=2048, devices=8)
        if isinstance(r.result, StepResult)
    ]
    row = pool_rounds("b256", ConfigurationLabels(batch=256, procs=8), configurations)
    assert isinstance(row, StepRow)
    assert [s.times_published for s in row.published_speeds or ()] == pytest.approx(
        [2048 / 0.35 / 8322, 2048 / 0.35 / 5815.8]
    )
    assert any("b256: 1.006 times the published rate per device: 5,815.8 img/s" in note for note in notes([row]))
    assert encode(row)["published_speeds"][1]["images_per_s_total"] == 5815.8
