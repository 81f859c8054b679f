"""NVIDIA DALI: an optional extra, for those who have standardised on it.

As a backend (`machine.backend=dali-cpu` or `dali-gpu`) it decodes, crops, resizes and flips as `base` decides.
"""

import threading
from typing import Any

import numpy as np
import torch

from vernier.config import Machine, Recipe
from vernier.data.sources.base import Indices, Source
from vernier.errors import ConfigError, RunFailed

from .base import BackendReader, CropRequest, accelerator

_CPU = torch.device("cpu")


def dali_cpu(source: Source, recipe: Recipe, machine: Machine) -> "DaliTrainReader":
    """The loader of machine.backend = dali-cpu."""
    return DaliTrainReader(source, recipe)


def dali_gpu(source: Source, recipe: Recipe, machine: Machine) -> "DaliTrainReader":
    """The loader of machine.backend = dali-gpu."""
    return DaliTrainReader(source, recipe, accelerator("cuda", machine))


def _modules() -> tuple[Any, Any, Any]:
    try:
        from nvidia.dali import fn, types
        from nvidia.dali.pipeline import pipeline_def
    except ImportError as error:
        raise ConfigError(f"DALI is not installed ({error}). pip install 'vernier[dali]'") from None
    return fn, types, pipeline_def


class DaliTrainReader(BackendReader):
    """Augmented training images by DALI, with one small pipeline per loader thread.

    On a GPU the decoder is DALI's "mixed" one; that path is untested on hardware.
    """

    def __init__(self, source: Source, recipe: Recipe, device: torch.device = _CPU) -> None:
        on_cpu = device.type == "cpu"
        super().__init__("dali-cpu" if on_cpu else "dali-gpu", source, recipe, device)
        self.resize = "DALI antialiased linear" + ("" if on_cpu else ", GPU")
        _modules()
        # Pipelines are not safe for use by several threads.
        self._local = threading.local()

    def _decode_into(self, request: CropRequest, indices: Indices, out: Any) -> None:
        images = self._run(indices, request)
        if self.torch_device.type == "cpu":
            for row in range(len(indices)):
                out[row] = images.at(row)
        else:
            from nvidia.dali.plugin import pytorch

            torch_plugin: Any = pytorch
            torch_plugin.feed_ndarray(images.as_tensor(), out)

    def _run(self, indices: Indices, request: CropRequest) -> Any:
        pipeline = self._pipeline(len(indices))
        pipeline.feed_input("encoded", request.encoded)
        pipeline.feed_input("anchor", list(request.boxes[:, :2]))
        pipeline.feed_input("shape", list(request.boxes[:, 2:]))
        pipeline.feed_input("flip", [np.array(int(f), np.int32) for f in request.flips])
        try:
            (images,) = pipeline.run()
        except RuntimeError as error:
            # After an error a pipeline of DALI cannot be run again.
            self._local.pipeline = None
            reason = str(error).strip().splitlines()[0]
            raise RunFailed(f"DALI could not read one of {self._names(indices)}: {reason}") from None
        return images

    def _pipeline(self, batch: int) -> Any:
        # A pipeline has a largest batch; a smaller last batch runs in it, too.
        if getattr(self._local, "pipeline", None) is None or self._local.batch < batch:
            self._local.pipeline, self._local.batch = _crop_pipeline(batch, self.shape[0], self.torch_device), batch
        return self._local.pipeline


def _crop_pipeline(batch: int, image_px: int, device: torch.device) -> Any:
    fn, types, pipeline_def = _modules()
    decoder = "cpu" if device.type == "cpu" else "mixed"

    @pipeline_def(  # type: ignore[untyped-decorator]
        # One thread each, because the loader has threads of its own. No prefetching: inputs come one batch at a time.
        batch_size=batch,
        num_threads=1,
        device_id=device.index,
        prefetch_queue_depth=1,
    )
    def pipeline() -> Any:
        kinds = {"encoded": (types.UINT8, 1), "anchor": (types.FLOAT, 1), "shape": (types.FLOAT, 1)}
        inputs = [fn.external_source(name=name, dtype=dtype, ndim=ndim) for name, (dtype, ndim) in kinds.items()]
        flip = fn.external_source(name="flip", dtype=types.INT32, ndim=0)
        images = fn.decoders.image_slice(
            *inputs,
            device=decoder,
            axis_names="WH",
            normalized_anchor=False,
            normalized_shape=False,
            output_type=types.RGB,
        )
        resized = fn.resize(
            images, resize_x=image_px, resize_y=image_px, interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.flip(resized, horizontal=flip)

    built = pipeline()
    built.build()
    return built
