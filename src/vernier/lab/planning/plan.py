"""Predicts the throughput of many devices from the measured speed of one, the size of the gradients and the network.

Synchronous data parallelism: a step computes, reduces gradients (within a host, then between hosts, by ring or tree,
whichever is faster; or, as gloo does on CPUs, by one ring over all devices), hides part of that behind the backward
pass, waits for the slowest device, and is never faster than its input. What the model leaves out (a loader that shares
the host's cores, launches of kernels, thermal limits, software) makes its predictions too high: `table` knows by
how much, from published tables.
"""

import math
import tomllib
from pathlib import Path

from vernier.frozen import frozen


@frozen
class Network:
    """Bandwidth and latency between devices. Bandwidths are per direction; a host's is that of all its adapters."""

    name: str
    per_host: int = 8
    link_gb_s: float = 25.0
    """Between the devices of a host, per device."""
    link_us: float = 5.0
    host_gb_s: float = 25.0
    """Between hosts, per host."""
    host_us: float = 10.0
    device: str | None = None
    """Kind of the devices that it connects; None: any."""


TABLES = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
"""Networks, and how published speeds compare with predicted ones."""
NETWORKS = {name: Network(name=name, **row) for name, row in TABLES["networks"].items()}

BACKWARD_SHARE = 2 / 3
"""The part of a step's compute that can hide communication."""


@frozen
class Workload:
    """What one device does per step, as measured."""

    images_per_s: float
    """Of a single device, at `measured_batch`."""
    measured_batch: int
    gradient_bytes: int
    speed_span: tuple[float, float] = (1.0, 1.0)
    """Lowest and highest speed that a single device may have, as shares of `images_per_s`."""
    half_batch: float = 8.0
    """Batch at which a device reaches half of its best speed: small batches take longer per image."""
    one_ring: bool = False
    """Gradients are summed by one ring over all processes, as gloo does on CPUs. Otherwise within each host, then
    between hosts, much like NCCL."""
    bucket_bytes: int = 25 << 20
    """Size of a gradient bucket: the last one cannot be hidden."""
    spread: float = 0.01
    """Relative standard deviation of step time between devices: all wait for the slowest."""
    host_images_per_s: float | None = None
    """Images per second that a host can load and decode; None: no limit."""
    watts: float | None = None
    """Power per device, including its share of the host."""
    precision: str | None = None
    """Precision of the measured speed; None: not known."""


@frozen
class Prediction:
    """The speed of so many devices. Efficiency is relative to as many single devices at the same batch per device."""

    images_per_s_total: float
    efficiency: float
    reduce_ms: float
    exposed_ms: float
    limit: str
    """What prolongs the step most: compute, small batch, network, slowest device or input."""


def compute_s(work: Workload, batch: int) -> float:
    """Seconds of one device for a batch: a fixed part, worth `half_batch` images, and one per image.

    A batch larger than the measured one is not assumed to be faster per image.
    """
    # Devices are nearly saturated at batches that people measure; hoping for more would flatter the plan.
    if batch >= work.measured_batch:
        return batch / work.images_per_s
    per_image_s = work.measured_batch / work.images_per_s / (work.measured_batch + work.half_batch)
    return (batch + work.half_batch) * per_image_s


def all_reduce_s(size_bytes: int, members: int, gb_s: float, latency_us: float) -> float:
    """Seconds of an all-reduce by the faster of a ring and a pipelined tree."""
    if members < 2:
        return 0.0
    bandwidth, latency_s = gb_s * 1e9, latency_us * 1e-6
    # Reduce-scatter and all-gather: every byte travels twice, less the own part.
    ring = 2 * (members - 1) / members * size_bytes / bandwidth + 2 * (members - 1) * latency_s
    # Pipelined, so that the depth costs latency only.
    tree = 2 * size_bytes / bandwidth + 2 * math.ceil(math.log2(members)) * latency_s
    return min(ring, tree)


def ring_s(size_bytes: int, devices: int, network: Network) -> float:
    """Seconds of an all-reduce by one ring over all devices, in which those of a host follow each other.

    Every chunk goes around twice, less one connection each time, and the slowest connection sets the pace. So each host
    sends as much as one device would alone: nearly twice the gradients where there are many.
    """
    hosts = math.ceil(devices / network.per_host)
    inside, between = (devices, 0) if hosts == 1 else (devices - hosts, hosts)
    gb_s = min(network.link_gb_s if inside else math.inf, network.host_gb_s if between else math.inf)
    around_s = 1e-6 * (inside * network.link_us + between * network.host_us)
    return 2 * (devices - 1) / devices * (size_bytes / (1e9 * gb_s) + around_s)


def reduce_gradients_s(size_bytes: int, devices: int, network: Network, *, one_ring: bool = False) -> float:
    """Seconds to all-reduce the gradients: within the hosts, then between them; or by one ring over all devices."""
    if one_ring:
        return ring_s(size_bytes, devices, network)
    inside_s = all_reduce_s(size_bytes, min(devices, network.per_host), network.link_gb_s, network.link_us)
    hosts = math.ceil(devices / network.per_host)
    return inside_s + all_reduce_s(size_bytes, hosts, network.host_gb_s, network.host_us)


def predict(work: Workload, devices: int, global_batch: int, network: Network) -> Prediction:
    """Predict the speed of so many devices. Where the batch does not divide, all wait for those with one image more."""
    device_batch = math.ceil(global_batch / devices)
    alone_s = compute_s(work, device_batch)
    reduce_s = reduce_gradients_s(work.gradient_bytes, devices, network, one_ring=work.one_ring)
    # The last bucket is complete only when the backward pass is over.
    tail_s = reduce_s * min(1.0, work.bucket_bytes / work.gradient_bytes)
    exposed_s = max(tail_s, reduce_s - BACKWARD_SHARE * alone_s)
    # Expected maximum of that many normal values, for large numbers.
    waiting_s = alone_s * work.spread * math.sqrt(2 * math.log(devices))
    step_s = alone_s + exposed_s + waiting_s
    loading_s = device_batch * min(devices, network.per_host) / (work.host_images_per_s or math.inf)
    small_s = alone_s - device_batch / work.images_per_s
    # Below 2 % of the compute nothing else is worth naming.
    parts = {"network": exposed_s, "slowest device": waiting_s, "small batch": small_s, "compute": 0.02 * alone_s}
    limit = "input" if loading_s > step_s else max(parts, key=lambda k: parts[k])
    total = global_batch / max(step_s, loading_s)
    return Prediction(
        images_per_s_total=total,
        efficiency=total / (global_batch / alone_s),
        reduce_ms=1e3 * reduce_s,
        exposed_ms=1e3 * exposed_s,
        limit=limit,
    )
