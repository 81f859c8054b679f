"""Scaling on paper: throughput of many devices from the measured speed of one, the gradients' size and a network model.

Synchronous data parallelism. A step computes, exchanges gradients (within a host, then between hosts, by ring or tree,
whichever is faster), hides part of that behind the backward pass, waits for the slowest device, and cannot outrun its input.
What no such model knows (a loader that shares the host's cores, thermal limits, software) makes its predictions too high.
"""

import math
from dataclasses import dataclass, replace

from vernier.records.codec import named, omitted


@dataclass(frozen=True, kw_only=True)
class Network:
    """How gradients travel. Bandwidths are one-directional; a host's is that of all its adapters together."""

    name: str
    per_host: int = 8
    link_gb_s: float = 25.0
    """Between devices of a host, for each device."""
    link_us: float = 5.0
    host_gb_s: float = 25.0
    """Between hosts, for each host."""
    host_us: float = 10.0


NETWORKS = {
    n.name: n
    for n in (
        Network(name="ethernet-10g", link_gb_s=8, host_gb_s=1.25, host_us=30),
        Network(name="ethernet-100g", link_gb_s=12, host_gb_s=12.5, host_us=20),
        Network(name="dgx-1", link_gb_s=150, host_gb_s=50),
        Network(name="dgx-2", per_host=16, link_gb_s=150, host_gb_s=100),
        Network(name="dgx-a100", link_gb_s=300, host_gb_s=200),
        Network(name="dgx-h100", link_gb_s=450, host_gb_s=400),
        Network(name="hls-1", link_gb_s=87.5, host_gb_s=300),
    )
}
"""By name, from the vendors' data sheets: DGX-1 V100 to H100, and Habana's eight Gaudi cards with RoCE."""

BACKWARD_SHARE = 2 / 3
"""Of a step's compute: the part behind which gradients can travel."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What one device does in one step, as measured."""

    images_per_s: float
    """Of one device alone, at `measured_batch`."""
    measured_batch: int
    gradient_bytes: int
    half_batch: float = 8.0
    """Images at which a device reaches half of its best speed: small batches are slower an image."""
    bucket_bytes: int = 25 << 20
    """The last gradients to be ready cannot be hidden."""
    spread: float = 0.01
    """Standard deviation of step time between devices, relative: all wait for the slowest."""
    host_images_per_s: float | None = None
    """What a host can load and decode; None: no limit."""
    watts: float | None = None
    """Of one device with its share of the host."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One row of a plan. Efficiency is against so many single devices at the same batch a device."""

    devices: int
    device_batch: int
    images_per_s_total: float
    efficiency: float
    compute_ms: float
    exchange_ms: float
    exposed_ms: float
    waiting_ms: float
    limit: str
    """What the step is made longer by most: compute, network, slowest or input."""


def compute_s(work: Workload, batch: int) -> float:
    """Seconds of one device for a batch: a fixed part, worth `half_batch` images, and one that goes with the images."""
    per_image_s = work.measured_batch / work.images_per_s / (work.measured_batch + work.half_batch)
    return (batch + work.half_batch) * per_image_s


def all_reduce_s(size_bytes: int, members: int, gb_s: float, latency_us: float) -> float:
    """The faster of a ring and a pipelined tree."""
    if members < 2:
        return 0.0
    bandwidth, latency_s = gb_s * 1e9, latency_us * 1e-6
    ring = 2 * (members - 1) / members * size_bytes / bandwidth + 2 * (members - 1) * latency_s
    tree = 2 * size_bytes / bandwidth + 2 * math.ceil(math.log2(members)) * latency_s
    return min(ring, tree)


def exchange_s(size_bytes: int, devices: int, network: Network) -> float:
    """All gradients: within the hosts, then between them."""
    inside = min(devices, network.per_host)
    hosts = math.ceil(devices / network.per_host)
    return all_reduce_s(size_bytes, inside, network.link_gb_s, network.link_us) + all_reduce_s(
        size_bytes, hosts, network.host_gb_s, network.host_us
    )


def predict(work: Workload, devices: int, device_batch: int, network: Network) -> Prediction:
    """What so many devices do together."""
    alone_s = compute_s(work, device_batch)
    travel_s = exchange_s(work.gradient_bytes, devices, network)
    tail_s = travel_s * min(1.0, work.bucket_bytes / work.gradient_bytes)
    exposed_s = max(tail_s if devices > 1 else 0.0, travel_s - BACKWARD_SHARE * alone_s)
    waiting_s = alone_s * work.spread * math.sqrt(2 * math.log(devices)) if devices > 1 else 0.0
    step_s = alone_s + exposed_s + waiting_s
    loading_s = 0.0
    if work.host_images_per_s is not None:
        loading_s = device_batch * min(devices, network.per_host) / work.host_images_per_s
    parts = {"network": exposed_s, "slowest": waiting_s, "compute": 0.02 * alone_s}
    limit = "input" if loading_s > step_s else max(parts, key=lambda k: parts[k])
    total = devices * device_batch / max(step_s, loading_s)
    return Prediction(
        devices=devices, device_batch=device_batch, images_per_s_total=total,
        efficiency=total / (devices * device_batch / alone_s), compute_ms=1e3 * alone_s, exchange_ms=1e3 * travel_s,
        exposed_ms=1e3 * exposed_s, waiting_ms=1e3 * waiting_s, limit=limit,
    )  # fmt: skip


def hours(images: float, images_per_s: float) -> float:
    """Training steps only: no evaluation, no start-up."""
    return images / images_per_s / 3600


def kilowatt_hours(images: float, row: Prediction, watts: float) -> float:
    return hours(images, row.images_per_s_total) * row.devices * watts / 1000


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One row of `vernier plan`, rounded for reading."""

    devices: int
    global_batch: int
    img_per_s_total: float
    efficiency_percent: float
    step_ms: float
    exposed_ms: float
    limit: str
    hours: float
    kwh: float | None = omitted()


def plan_rows(work: Workload, counts: list[int], device_batch: int, network: Network, images: float) -> list[PlanRow]:
    """Predict a training on `images` images in total for each number of devices."""
    rows = []
    for count in counts:
        row = predict(work, count, device_batch, network)
        rate = row.images_per_s_total
        rows.append(
            PlanRow(
                devices=count,
                global_batch=count * device_batch,
                img_per_s_total=round(rate, 1),
                efficiency_percent=round(100 * row.efficiency, 1),
                step_ms=round(1000 * count * device_batch / rate, 2),
                exposed_ms=round(row.exposed_ms, 3),
                limit=row.limit,
                hours=round(hours(images, rate), 3),
                kwh=None if work.watts is None else round(kilowatt_hours(images, row, work.watts), 2),
            )
        )
    return rows


# ----------------------------------------------------------------------------------------------- against published tables


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published speed-up: of `devices` from the speed of `base`, at a batch a device."""

    what: str
    network: str
    gradient_bytes: int
    base: int = 1
    base_images_per_s: float
    base_batch: int | None = None
    """Where it is not `device_batch`."""
    devices: int
    device_batch: int
    images_per_s: float
    source: str


_DLE = "NVIDIA DeepLearningExamples"
_HABANA = "developer.habana.ai, SynapseAI 1.0"
_MLPERF = "MLPerf Training 4.0 logs"
_RN50, _RX101, _SSD = 25_557_032, 44_177_704, 23_000_000


def _row(
    what: str, network: str, bytes_each: int, parameters: int, batch: int, base: float, devices: int, total: float, source: str
) -> Published:  # fmt: skip
    return Published(
        what=what, network=network, gradient_bytes=bytes_each * parameters, device_batch=batch, base_images_per_s=base,
        devices=devices, images_per_s=total, source=source,
    )  # fmt: skip


PUBLISHED = (
    _row("ResNet-50 V100 fp16, 2019", "dgx-1", 2, _RN50, 256, 747.3, 4, 2886.9, _DLE),
    _row("ResNet-50 V100 fp16, 2019", "dgx-1", 2, _RN50, 256, 747.3, 8, 5815.8, _DLE),
    _row("ResNet-50 V100 fp32, 2019", "dgx-1", 4, _RN50, 128, 363.1, 8, 2857.9, _DLE),
    _row("ResNet-50 V100 fp16, DGX-2, 2019", "dgx-2", 2, _RN50, 256, 747.3, 16, 12086.1, _DLE),
    _row("ResNet-50 V100 AMP, 21.03", "dgx-1", 2, _RN50, 256, 1200, 8, 8322, _DLE),
    _row("ResNet-50 V100 fp32, 21.03", "dgx-1", 4, _RN50, 112, 367, 8, 2855, _DLE),
    _row("ResNet-50 A100 TF32, 21.03", "dgx-a100", 4, _RN50, 256, 938, 8, 7248, _DLE),
    _row("ResNet-50 A100 AMP, 21.03", "dgx-a100", 2, _RN50, 256, 2470, 8, 16621, _DLE),
    _row("ResNeXt-101 A100 TF32", "dgx-a100", 4, _RX101, 128, 456, 8, 3471, _DLE),
    _row("ResNeXt-101 A100 AMP", "dgx-a100", 2, _RX101, 128, 1211, 8, 7925, _DLE),
    _row("SSD300-RN50 A100 TF32", "dgx-a100", 4, _SSD, 128, 377.18, 8, 2967.23, _DLE),
    _row("SSD300-RN50 A100 AMP", "dgx-a100", 2, _SSD, 128, 724.41, 8, 5733.98, _DLE),
    _row("ResNet-50 Gaudi bf16, PyTorch 0.13", "hls-1", 4, _RN50, 256, 679, 8, 4808, "Habana Model-References 0.13"),
    _row("ResNet-50 Gaudi bf16, Keras", "hls-1", 4, _RN50, 256, 1700, 8, 12580, _HABANA),
    _row("ResNet-50 Gaudi bf16, Keras", "hls-1", 4, _RN50, 256, 1700, 16, 23400, _HABANA),
    _row("ResNet-50 Gaudi bf16, Keras", "hls-1", 4, _RN50, 256, 1700, 32, 46400, _HABANA),
    _row("ResNeXt-101 Gaudi bf16", "hls-1", 4, _RX101, 128, 650, 8, 4656, _HABANA),
    Published(
        what="ResNet-50 H100, batch 51 a device assumed", network="dgx-h100", gradient_bytes=2 * _RN50, base=8, base_batch=408,
        base_images_per_s=57_100, devices=64, device_batch=51, images_per_s=57_100 * 8 * 0.685, source=_MLPERF,
    ),
    Published(
        what="ResNet-50 H100, batch 16 a device", network="dgx-h100", gradient_bytes=2 * _RN50, base=8, base_batch=408,
        base_images_per_s=57_100, devices=3584, device_batch=16, images_per_s=10.10e6, source=_MLPERF,
    ),
)  # fmt: skip


def compared(row: Published) -> tuple[float, float]:
    """Predicted images a second, and the error against what was published, in percent. Nothing is fitted to the row."""
    each = row.base_images_per_s / row.base
    work = Workload(
        images_per_s=each, measured_batch=row.base_batch or row.device_batch, gradient_bytes=row.gradient_bytes
    )
    network = NETWORKS[row.network]
    if row.base > 1:  # the base has paid for its own exchange already
        paid = predict(work, row.base, row.base_batch or row.device_batch, network).efficiency
        work = replace(work, images_per_s=each / paid)
    total = predict(work, row.devices, row.device_batch, network).images_per_s_total
    return total, 100 * (total / row.images_per_s - 1)


@dataclass(frozen=True, kw_only=True)
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
        predicted, error = compared(row)
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
