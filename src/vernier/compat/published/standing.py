"""Compares a measured rate with the published ones of the same device, network and precision.

A comparison needs the published device, by the name that its driver gives it, the network as published and its image
size. Rates are compared per device. What else differs is said with it: batch, number of devices, arithmetic, data.
"""

import math
import re

from vernier.measure.agreement import published_precision
from vernier.measure.published import PublishedFigures, PublishedRate
from vernier.records.run import PublishedSpeed
from vernier.records.what_ran import WhatRan

from .tables import rates, times

_DRIVER_NAMES = {
    "V100 16 GB": r"V100-SXM\d?-16GB",
    "V100 32 GB": r"V100-SXM\d?-32GB",
    "A100 80 GB": r"A100-SXM\d?-80GB",
    "T4": r"\bT4\b",
    "Gaudi": r"\bHL-20\d\b|\bGAUDI\b(?! ?\d)",
    "Gaudi 2": r"\bHL-225\b|\bGAUDI ?2\b",
}
"""Published devices, and how their drivers call them. Other forms of a chip, such as PCIe cards, are other devices."""


def published_device(name: str) -> str | None:
    """The published device that a driver calls so; None for any other, and for a part of one (MIG)."""
    if "MIG" in name:
        return None
    return next((device for device, form in _DRIVER_NAMES.items() if re.search(form, name, re.IGNORECASE)), None)


def compare(ran: WhatRan, images_per_s_total: float) -> tuple[PublishedSpeed, ...]:
    """How a measured rate compares with each source's nearest published rate, newest source first; often none."""
    if ran.smoke or ran.start_px is not None or (device := published_device(ran.device)) is None:
        return ()
    nearest: dict[tuple[str, str], PublishedRate] = {}
    for rate in rates():
        if _is_comparable(rate, ran, device):
            key = rate.source.citation, rate.note
            if key not in nearest or _distance(rate, ran) < _distance(nearest[key], ran):
                nearest[key] = rate
    newest_first = sorted(nearest.values(), key=lambda rate: -rate.source.year)
    return tuple(_compare(rate, ran, images_per_s_total) for rate in newest_first)


def _is_comparable(rate: PublishedRate, ran: WhatRan, device: str) -> bool:
    same = (rate.what, rate.model, rate.image_px, rate.device) == (ran.kind, ran.network, ran.image_px, device)
    return same and rate.precision == published_precision(ran.precision)


def _distance(rate: PublishedRate, ran: WhatRan) -> tuple[float, float]:
    return abs(math.log(rate.devices / ran.devices)), abs(math.log(rate.device_batch / ran.batch_per_device))


def _compare(rate: PublishedRate, ran: WhatRan, images_per_s_total: float) -> PublishedSpeed:
    differs = []
    if rate.devices != ran.devices:
        differs.append(f"devices {rate.devices} -> {ran.devices}")
    if rate.device_batch != ran.batch_per_device:
        differs.append(f"batch per device {rate.device_batch} -> {ran.batch_per_device}")
    if rate.arithmetic is not None and rate.arithmetic != ran.precision:
        differs.append(f"{rate.arithmetic} -> {ran.precision}")
    if ran.data in ("synthetic", "static"):
        differs.append(f"images of the publication -> {ran.data}")
    return PublishedSpeed(
        images_per_s_total=rate.images_per_s,
        devices=rate.devices,
        device=rate.device,
        batch_per_device=rate.device_batch,
        precision=rate.arithmetic or rate.precision,
        latency_ms=rate.latency_ms,
        latency_ms_p95=rate.latency_ms_p95,
        latency_ms_p99=rate.latency_ms_p99,
        where=", ".join(filter(None, (rate.system, rate.note, rate.source.citation, _batch_origin(rate)))),
        times_published=images_per_s_total / ran.devices / rate.images_per_s_per_device,
        differs=tuple(differs),
    )


def _batch_origin(rate: PublishedRate) -> str:
    """Tables of inference have a row per batch; those of training often do not say theirs."""
    return "" if rate.what == "infer" or rate.source.batch == "stated" else f"batch {rate.source.batch}"


FIGURES = PublishedFigures(rates=rates, times=times, compare=compare)
