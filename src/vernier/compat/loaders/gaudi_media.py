"""The media loader of Gaudi 2 and later, which decodes JPEGs in hardware; needs SynapseAI.

Untested on hardware. The tests run it on the Python half of habana-media-loader 1.24, from PyPI; the compiled half,
which decodes, comes with SynapseAI.
"""

import queue
import threading
from typing import Any

import numpy as np
import torch

from vernier.config import Machine, Recipe
from vernier.data.sources.base import Indices, Source
from vernier.errors import ConfigError, RunFailed

from .base import BackendReader, CropRequest, accelerator

_ALIGNMENT = 64  # the decoder reads whole blocks of this many bytes


def gaudi_media(source: Source, recipe: Recipe, machine: Machine) -> "GaudiTrainReader":
    """The loader of machine.backend = gaudi-media."""
    return GaudiTrainReader(source, recipe, accelerator("hpu", machine))


def _modules() -> tuple[Any, ...]:
    try:
        from habana_frameworks.mediapipe import fn, media_types
        from habana_frameworks.mediapipe.mediapipe import MediaPipe
        from habana_frameworks.mediapipe.operators.reader_nodes import reader_nodes
        from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUGenericPytorchIterator
    except ImportError as error:
        raise ConfigError(
            f"machine.backend = gaudi-media needs SynapseAI's package habana-media-loader ({error}). "
            "Install it as the Gaudi software guide says, or use machine.backend=native."
        ) from None
    return fn, media_types, MediaPipe, reader_nodes, HPUGenericPytorchIterator


class GaudiTrainReader(BackendReader):
    """Augmented training images by the media loader, with one pipeline per batch size, each fed through a queue."""

    resize = "Gaudi media decoder, linear"

    def __init__(self, source: Source, recipe: Recipe, device: torch.device) -> None:
        super().__init__("gaudi-media", source, recipe, device)
        self._modules = _modules()
        self._lock = threading.Lock()
        self._pipes: dict[int, tuple[queue.Queue[CropRequest], Any]] = {}

    def _decode_into(self, request: CropRequest, indices: Indices, out: torch.Tensor) -> None:
        with self._lock:  # a pipeline answers its requests in order
            requests, images = self._pipe(len(indices))
            requests.put(request)
            try:
                (decoded, *_) = next(images)
            except RuntimeError as error:
                raise RunFailed(f"The media loader could not read one of {self._names(indices)}: {error}") from None
            out.copy_(decoded)

    def _pipe(self, batch: int) -> tuple["queue.Queue[CropRequest]", Any]:
        if batch not in self._pipes:
            requests: queue.Queue[CropRequest] = queue.Queue()
            iterator = self._modules[-1](mediapipe=_pipeline(self._modules, requests, batch, self.shape[0]))
            self._pipes[batch] = requests, iter(iterator)
        return self._pipes[batch]


def _reader(modules: tuple[Any, ...], requests: "queue.Queue[CropRequest]") -> type:
    """The class of the media loader's input: images, crops as shares of their image, flips."""
    _, types, _, nodes, _ = modules

    class Reader(nodes.media_ext_reader_op_impl):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any, fw_params: Any) -> None:
            self._batch = fw_params.batch_size

        def __iter__(self) -> Any:
            return self

        def __len__(self) -> int:
            return 1 << 30

        def __next__(self) -> Any:
            request = requests.get()
            images = np.empty(len(request.encoded), dtype=np.object_)
            for row, content in enumerate(request.encoded):
                images[row] = np.pad(content, (0, _ALIGNMENT - len(content) % _ALIGNMENT))
            return images, request.boxes / np.tile(request.sizes, 2), request.flips.astype(np.uint8)

        def get_media_output_type(self) -> Any:
            return types.readerOutType.BUFFER_LIST

        def get_largest_file(self) -> str:
            return ""

        def gen_output_info(self) -> list[Any]:
            batch = self._batch
            kinds = ((types.dtype.NDT, [batch]), (types.dtype.FLOAT32, [4, batch]), (types.dtype.UINT8, [batch]))
            return [nodes.media_ext_reader_op_tensor_info(k, np.array(s, dtype=np.uint32), "") for k, s in kinds]

    return Reader


def _pipeline(modules: tuple[Any, ...], requests: "queue.Queue[CropRequest]", batch: int, image_px: int) -> Any:
    """The graph of the media loader, for its iterator to build.

    Without prefetching it takes one request per batch, when the batch is wanted; otherwise it would wait for requests
    that come only after that batch.
    """
    fn, types, pipe, _, _ = modules

    class Pipeline(pipe):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(device="legacy", prefetch_depth=0, batch_size=batch, pipe_name=f"vernier-{batch}")
            self._input = fn.MediaExtReaderOp(impl=_reader(modules, requests), num_outputs=3, priv_params={})
            self._decode = fn.ImageDecoder(
                device="hpu",
                output_format=types.imgtype.RGB_I,
                resize=[image_px, image_px],
                resampling_mode=types.ftype.BI_LINEAR,
            )
            self._flip = fn.RandomFlip(horizontal=1, device="hpu")

        def definegraph(self) -> Any:
            encoded, crops, flips = self._input()
            return self._flip(self._decode(encoded, crops), flips)

    return Pipeline()
