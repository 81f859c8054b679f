"""The tables against the documents' own, copied here as they print them, and against what a table says about itself."""

import pytest

from vernier import recipes as book
from vernier.measure.published import PublishedRate, PublishedTime, figures_of, rates, times
from vernier.models import names

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
    assert [row for row in rows if not any(row.belongs_to(name) for name in book.BUILT_IN)] == []


def test_no_figure_is_there_twice() -> None:
    keys = [
        (r.source.citation, r.note, r.what, r.model, r.device, r.devices, r.device_batch, r.precision) for r in rates()
    ]
    assert len(keys) == len(set(keys))


def test_figures_of_a_recipe() -> None:
    own_rates, own_times = figures_of("habana-tf-resnext101-90e")
    assert [(r.devices, r.images_per_s) for r in own_rates] == [(1, 650), (8, 4656)]
    assert [(t.devices, round(t.hours, 2)) for t in own_times] == [(8, 6.93)]
    assert figures_of("shapes-quick") == ([], [])
