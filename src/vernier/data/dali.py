"""NVIDIA DALI on the CPU: an optional extra, for comparison and for those who have standardised on it.

As a backend (`machine.backend=dali-cpu`) it decodes, crops, resizes and flips; which samples, which crops and which flips
is decided here as for the native one, so order, resume and processes behave the same and only the resize kernel differs.
"""

import threading
from typing import Any

import numpy as np
import torch

from vernier.config import Augment, Data
from vernier.data.bad import BadImages
from vernier.data.decode import BadImage, Image, size_of
from vernier.data.loader import class_numbers
from vernier.data.sources.base import EncodedSource, Indices, Source
from vernier.data.transforms import augment_rows, random_crop_box
from vernier.errors import ConfigError, RunFailed


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


class DaliTrainReader:
    """Augmented training images by DALI, one small pipeline a loader thread. A bad image ends the run: none is replaced."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int) -> None:
        if not isinstance(source, EncodedSource) or augment.crop != "random-resized":
            raise ConfigError(
                "machine.backend = dali-cpu needs encoded images and augment.crop = random-resized. Use machine.backend=native."
            )
        if (
            augment.policy != "none"
            or augment.jitter != "none"
            or augment.erase > 0
            or augment.start_px is not None
            or data.interpolation != "bilinear"
        ):
            raise ConfigError(
                "machine.backend = dali-cpu crops, resizes (bilinear) and flips, nothing else: this recipe wants more. "
                "Use machine.backend=native."
            )
        _modules()
        self._source, self._augment, self._seed = source, augment, seed
        self.shape = (data.image_px, data.image_px, source.channels)
        self.bad = BadImages(0, len(source))
        self._local = threading.local()

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        rows = augment_rows(self._seed, epoch, indices)
        encoded, anchors, shapes = [], [], []
        for place, index in enumerate((indices % len(self._source)).tolist()):
            try:
                encoded.append(np.frombuffer(self._source.read(index), np.uint8))
                left, top, w, h = random_crop_box(*size_of(encoded[-1].tobytes()), self._augment, rows[place])
            except (BadImage, OSError) as error:
                self.bad.report(index, self._source.describe(index), str(error))
                raise AssertionError from error
            anchors.append(np.array([left, top], np.float32))
            shapes.append(np.array([w, h], np.float32))
        flips = [np.array(int(f), np.int32) for f in rows[:, -2] < self._augment.flip]
        for place, image in enumerate(self._run(indices, encoded, anchors, shapes, flips)):
            out[place] = image

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    def _run(
        self, indices: Indices, encoded: list[Any], anchors: list[Any], shapes: list[Any], flips: list[Any]
    ) -> list[Any]:
        pipeline = self._pipeline(len(indices))
        for name, values in (("encoded", encoded), ("anchor", anchors), ("shape", shapes), ("flip", flips)):
            pipeline.feed_input(name, values)
        try:
            (images,) = pipeline.run()
        except RuntimeError as error:
            self._local.pipeline = None
            names = ", ".join(self._source.describe(i) for i in indices.tolist())
            raise RunFailed(f"DALI could not read one of {names}: {str(error).strip().splitlines()[0]}") from None
        return [images.at(i) for i in range(len(indices))]

    def _pipeline(self, batch: int) -> Any:
        if getattr(self._local, "pipeline", None) is None or self._local.batch < batch:
            self._local.pipeline, self._local.batch = _crop_pipeline(batch, self.shape[0]), batch
        return self._local.pipeline


def _crop_pipeline(batch: int, image_px: int) -> Any:
    fn, types, pipeline_def = _modules()

    @pipeline_def(batch_size=batch, num_threads=1, device_id=None, prefetch_queue_depth=1)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        anchor = fn.external_source(name="anchor", dtype=types.FLOAT, ndim=1)
        shape = fn.external_source(name="shape", dtype=types.FLOAT, ndim=1)
        flip = fn.external_source(name="flip", dtype=types.INT32, ndim=0)
        images = fn.decoders.image_slice(
            encoded, anchor, shape, axis_names="WH", normalized_anchor=False, normalized_shape=False, output_type=types.RGB
        )  # fmt: skip
        images = fn.resize(
            images, resize_x=image_px, resize_y=image_px, interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.flip(images, horizontal=flip)

    built = pipeline()
    built.build()
    return built
