"""A quick probe of how fast one core makes JPEGs into training images, on rendered images, for `vernier doctor`."""

import statistics

import numpy as np
import simplejpeg

from vernier.clock import now_s
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import TrainTransform, augment_rows
from vernier.data.decoding.decode import lazy_image
from vernier.data.shapes import ShapesSpec, render
from vernier.lab.machine.doctor import DecodingProbe

_PX, _IMAGES, _QUALITY = 400, 8, 90


def probe_decoding(seconds: float) -> DecodingProbe:
    """Decode, crop randomly to 224 pixels and flip on one core; the rate is that of the median round of `_IMAGES`."""
    spec = ShapesSpec(size_px=_PX)
    encoded = [
        simplejpeg.encode_jpeg(render(spec, "train", index).image, _QUALITY, "RGB", "420") for index in range(_IMAGES)
    ]
    transform, out = TrainTransform(Data(), Augment()), np.empty((224, 224, 3), dtype=np.uint8)
    rates: list[float] = []
    began = now_s()
    while len(rates) < 3 or now_s() - began < seconds:
        rows, start = augment_rows(1, len(rates), np.arange(_IMAGES)), now_s()
        for row, image in zip(rows, encoded, strict=True):
            transform(lazy_image(image), row, out)
        rates.append(_IMAGES / (now_s() - start))
    return DecodingProbe(
        images=f"rendered {_PX} px JPEGs of {sum(map(len, encoded)) // _IMAGES // 1000} kB",
        images_per_s_per_core=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        rounds=len(rates),
    )
