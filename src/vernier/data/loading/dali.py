"""NVIDIA DALI: an optional extra, for comparison and for those who have standardised on it.

As a backend (`machine.backend=dali-cpu` or `dali-gpu`) it decodes, crops, resizes and flips what `data.backends` decides.
"""

import threading
from typing import Any

import numpy as np
import torch

from vernier.config import Augment, Data
from vernier.data.loading.backends import BackendReader, Wanted
from vernier.data.sources.base import Indices, Source
from vernier.errors import ConfigError, RunFailed

_CPU = torch.device("cpu")


def _modules() -> tuple[Any, Any, Any]:
    try:
        from nvidia.dali import fn, types
        from nvidia.dali.pipeline import pipeline_def
    except ImportError as error:
        raise ConfigError(f"DALI is not installed ({error}). pip install 'vernier[dali]'") from None
    return fn, types, pipeline_def


def train_pipeline(
    paths: list[str], *, batch: int, threads: int, image_px: int, area: tuple[float, float], ratio: tuple[float, float], seed: int = 0
) -> Any:  # fmt: skip
    """RandomResizedCrop by DALI's fused decoder, flip, uint8 [height, width, 3]; built and ready to run."""
    fn, types, pipeline_def = _modules()

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=None, seed=seed, prefetch_queue_depth=2)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(files=paths, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=list(area), random_aspect_ratio=list(ratio), num_attempts=10
        )  # fmt: skip
        images = fn.resize(
            images, resize_x=image_px, resize_y=image_px, interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.flip(images, horizontal=fn.random.coin_flip(probability=0.5))

    built = pipeline()
    built.build()
    return built


def decode_bytes(encoded: list[bytes]) -> list[Any]:
    """Images as DALI decodes them."""
    fn, types, pipeline_def = _modules()

    @pipeline_def(batch_size=len(encoded), num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        files = fn.external_source(lambda: [np.frombuffer(e, np.uint8) for e in encoded], dtype=types.UINT8)
        return fn.decoders.image(files, device="cpu", output_type=types.RGB)

    built = pipeline()
    built.build()
    (images,) = built.run()
    return [images.at(i) for i in range(len(encoded))]


class DaliTrainReader(BackendReader):
    """Augmented training images by DALI, one small pipeline a loader thread; on a GPU the decoder is the mixed one (not run by us)."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int, place: torch.device = _CPU) -> None:
        super().__init__("dali-cpu" if place.type == "cpu" else "dali-gpu", source, data, augment, seed, place)
        _modules()
        self._local = threading.local()

    def _make(self, wanted: Wanted, indices: Indices, out: Any) -> None:
        images = self._run(indices, wanted)
        if self.place.type == "cpu":
            for place in range(len(indices)):
                out[place] = images.at(place)
        else:
            from nvidia.dali.plugin import pytorch

            copying: Any = pytorch
            copying.feed_ndarray(images.as_tensor(), out)

    def _run(self, indices: Indices, wanted: Wanted) -> Any:
        pipeline = self._pipeline(len(indices))
        fed = {
            "encoded": wanted.encoded, "anchor": list(wanted.boxes[:, :2]), "shape": list(wanted.boxes[:, 2:]),
            "flip": [np.array(int(f), np.int32) for f in wanted.flips],
        }  # fmt: skip
        for name, values in fed.items():
            pipeline.feed_input(name, values)
        try:
            (images,) = pipeline.run()
        except RuntimeError as error:
            self._local.pipeline = None
            reason = str(error).strip().splitlines()[0]
            raise RunFailed(f"DALI could not read one of {self._names(indices)}: {reason}") from None
        return images

    def _pipeline(self, batch: int) -> Any:
        if getattr(self._local, "pipeline", None) is None or self._local.batch < batch:
            self._local.pipeline, self._local.batch = _crop_pipeline(batch, self.shape[0], self.place), batch
        return self._local.pipeline


def _crop_pipeline(batch: int, image_px: int, place: torch.device) -> Any:
    fn, types, pipeline_def = _modules()
    decoder = "cpu" if place.type == "cpu" else "mixed"

    @pipeline_def(batch_size=batch, num_threads=1, device_id=place.index, prefetch_queue_depth=1)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        anchor = fn.external_source(name="anchor", dtype=types.FLOAT, ndim=1)
        shape = fn.external_source(name="shape", dtype=types.FLOAT, ndim=1)
        flip = fn.external_source(name="flip", dtype=types.INT32, ndim=0)
        images = fn.decoders.image_slice(
            encoded, anchor, shape, device=decoder, axis_names="WH", normalized_anchor=False, normalized_shape=False,
            output_type=types.RGB,
        )  # fmt: skip
        images = fn.resize(
            images, resize_x=image_px, resize_y=image_px, interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.flip(images, horizontal=flip)

    built = pipeline()
    built.build()
    return built
