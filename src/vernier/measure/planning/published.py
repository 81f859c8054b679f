"""Published scaling tables and what the model of `plan` predicts for them, for `vernier plan --check`."""

from dataclasses import replace
from typing import NamedTuple

from vernier.frozen import frozen
from vernier.measure.planning.plan import NETWORKS, Workload, predict
from vernier.records.codec import named


class PublishedSpeed(NamedTuple):
    """Images per second of `devices` devices, and of a smaller number, the base, from which they are predicted."""

    what: str
    network: str
    gradient_bytes: int
    device_batch: int
    base_images_per_s: float
    devices: int
    images_per_s: float
    source: str
    base: int = 1
    base_batch: int | None = None
    """Batch per device of the base where it is not `device_batch`."""


_DLE = "NVIDIA DeepLearningExamples"
_HABANA = "developer.habana.ai, SynapseAI 1.0"
_MLPERF = "MLPerf Training 4.0 logs"
_RN50, _RX101, _SSD = 25_557_032, 44_177_704, 23_000_000


PUBLISHED = (
    PublishedSpeed("ResNet-50 V100 fp16, 2019", "dgx-1", 2 * _RN50, 256, 747.3, 4, 2886.9, _DLE),
    PublishedSpeed("ResNet-50 V100 fp16, 2019", "dgx-1", 2 * _RN50, 256, 747.3, 8, 5815.8, _DLE),
    PublishedSpeed("ResNet-50 V100 fp32, 2019", "dgx-1", 4 * _RN50, 128, 363.1, 8, 2857.9, _DLE),
    PublishedSpeed("ResNet-50 V100 fp16, DGX-2, 2019", "dgx-2", 2 * _RN50, 256, 747.3, 16, 12086.1, _DLE),
    PublishedSpeed("ResNet-50 V100 AMP, 21.03", "dgx-1", 2 * _RN50, 256, 1200, 8, 8322, _DLE),
    PublishedSpeed("ResNet-50 V100 fp32, 21.03", "dgx-1", 4 * _RN50, 112, 367, 8, 2855, _DLE),
    PublishedSpeed("ResNet-50 A100 TF32, 21.03", "dgx-a100", 4 * _RN50, 256, 938, 8, 7248, _DLE),
    PublishedSpeed("ResNet-50 A100 AMP, 21.03", "dgx-a100", 2 * _RN50, 256, 2470, 8, 16621, _DLE),
    PublishedSpeed("ResNeXt-101 A100 TF32", "dgx-a100", 4 * _RX101, 128, 456, 8, 3471, _DLE),
    PublishedSpeed("ResNeXt-101 A100 AMP", "dgx-a100", 2 * _RX101, 128, 1211, 8, 7925, _DLE),
    PublishedSpeed("SSD300-RN50 A100 TF32", "dgx-a100", 4 * _SSD, 128, 377.18, 8, 2967.23, _DLE),
    PublishedSpeed("SSD300-RN50 A100 AMP", "dgx-a100", 2 * _SSD, 128, 724.41, 8, 5733.98, _DLE),
    PublishedSpeed(
        "ResNet-50 Gaudi bf16, PyTorch 0.13", "hls-1", 4 * _RN50, 256, 679, 8, 4808, "Habana Model-References 0.13"
    ),
    PublishedSpeed("ResNet-50 Gaudi bf16, Keras", "hls-1", 4 * _RN50, 256, 1700, 8, 12580, _HABANA),
    PublishedSpeed("ResNet-50 Gaudi bf16, Keras", "hls-1", 4 * _RN50, 256, 1700, 16, 23400, _HABANA),
    PublishedSpeed("ResNet-50 Gaudi bf16, Keras", "hls-1", 4 * _RN50, 256, 1700, 32, 46400, _HABANA),
    PublishedSpeed("ResNeXt-101 Gaudi bf16", "hls-1", 4 * _RX101, 128, 650, 8, 4656, _HABANA),
    PublishedSpeed(
        "ResNet-50 H100, batch 51 per device assumed",
        "dgx-h100",
        2 * _RN50,
        51,
        57_100,
        64,
        57_100 * 8 * 0.685,
        _MLPERF,
        8,
        408,
    ),
    PublishedSpeed(
        "ResNet-50 H100, batch 16 per device", "dgx-h100", 2 * _RN50, 16, 57_100, 3584, 10.10e6, _MLPERF, 8, 408
    ),
)


def predict_published(row: PublishedSpeed) -> tuple[float, float]:
    """Predicted images per second, and their error in percent of the published ones. Nothing is fitted to the row."""
    each, batch, network = row.base_images_per_s / row.base, row.base_batch or row.device_batch, NETWORKS[row.network]
    work = Workload(images_per_s=each, measured_batch=batch, gradient_bytes=row.gradient_bytes)
    if row.base > 1:  # the base includes its own communication
        base_efficiency = predict(work, row.base, batch, network).efficiency
        work = replace(work, images_per_s=each / base_efficiency)
    total = predict(work, row.devices, row.device_batch, network).images_per_s_total
    return total, 100 * (total / row.images_per_s - 1)


@frozen
class CheckRow:
    """One row of `vernier plan --check`: the model beside a published table. Percentages are scaling efficiencies."""

    what: str
    network: str
    base: int = named("from")
    devices: int = named("to")
    published_img_per_s: int
    published_percent: float
    predicted_percent: float
    error_percent: float
    source: str


def check_rows() -> list[CheckRow]:
    """Compare the model with every published row."""
    rows = []
    for row in PUBLISHED:
        predicted, error = predict_published(row)
        scale = row.base / row.base_images_per_s / row.devices
        rows.append(
            CheckRow(
                what=row.what,
                network=row.network,
                base=row.base,
                devices=row.devices,
                published_img_per_s=round(row.images_per_s),
                published_percent=round(100 * row.images_per_s * scale, 1),
                predicted_percent=round(100 * predicted * scale, 1),
                error_percent=round(error, 1),
                source=row.source,
            )
        )
    return rows
