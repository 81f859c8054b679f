"""The Gaudi media loader: there is no Gaudi here, so a fake records the calls."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.loading.fake_decoders import crop_boxes, fake_modules
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import augment_rows
from vernier.data.loading.gaudi_media import GaudiTrainReader
from vernier.data.sources import open_split
from vernier.errors import ConfigError


@pytest.mark.skipif(importlib.util.find_spec("habana_frameworks") is not None, reason="SynapseAI is installed")
def test_the_media_loader_without_its_package_is_refused_with_what_works(shapes: Path) -> None:
    with pytest.raises(ConfigError, match=r"habana-media-loader.*machine.backend=native"):
        GaudiTrainReader(open_split(str(shapes), "train"), Data(), Augment(), 1, torch.device("cpu"))


class _FakeMediaFrameworkThatRecordsCalls:
    """Stands in for habana_frameworks: runs the graph as the reader describes it, with a decoder that only notes its
    input."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.inputs: list[tuple[list[Any], Any, Any]] = []
        fake = self

        class MediaPipe:
            def __init__(self, **kwargs: Any) -> None:
                fake.calls.append(("MediaPipe", kwargs))
                self.batch_size = kwargs["batch_size"]

            def build(self) -> None:
                fake.calls.append(("build", {}))

        class Batches:
            def __init__(self, mediapipe: Any) -> None:
                self._pipe = mediapipe

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> list[torch.Tensor]:
                return [self._pipe.definegraph()]

        self.fn = SimpleNamespace(MediaExtReaderOp=self._reader, ImageDecoder=self._decoder, RandomFlip=self._flip)
        self.MediaPipe, self.Iterator = MediaPipe, Batches

    def _reader(self, **kwargs: Any) -> Callable[[], Any]:
        self.calls.append(("MediaExtReaderOp", {k: v for k, v in kwargs.items() if k != "impl"}))
        reader = kwargs["impl"]({"priv_params": {}}, SimpleNamespace(batch_size=6))
        self.info = reader.gen_output_info()
        assert reader.get_media_output_type() == "buffers"

        def run() -> Any:
            self.inputs.append(next(iter(reader)))
            return self.inputs[-1]

        return run

    def _decoder(self, **kwargs: Any) -> Callable[..., torch.Tensor]:
        self.calls.append(("ImageDecoder", kwargs))
        width, height = kwargs["resize"]
        return lambda encoded, crops: torch.arange(len(encoded), dtype=torch.uint8)[:, None, None, None].expand(
            -1, height, width, 3
        )

    def _flip(self, **kwargs: Any) -> Callable[..., torch.Tensor]:
        self.calls.append(("RandomFlip", kwargs))
        return lambda images, flips: images + 100 * torch.from_numpy(flips)[:, None, None, None]

    def modules(self) -> dict[str, ModuleType]:
        types = SimpleNamespace(
            dtype=SimpleNamespace(NDT="ndt", FLOAT32="f32", UINT8="u8"),
            readerOutType=SimpleNamespace(BUFFER_LIST="buffers"),
            imgtype=SimpleNamespace(RGB_I="rgb"),
            ftype=SimpleNamespace(BI_LINEAR="linear"),
        )
        nodes = SimpleNamespace(media_ext_reader_op_impl=object, media_ext_reader_op_tensor_info=lambda *a: a)
        content: dict[str, dict[str, Any]] = {
            "habana_frameworks": {},
            "habana_frameworks.mediapipe": {"fn": self.fn, "media_types": types},
            "habana_frameworks.mediapipe.mediapipe": {"MediaPipe": self.MediaPipe},
            "habana_frameworks.mediapipe.operators": {},
            "habana_frameworks.mediapipe.operators.reader_nodes": {"reader_nodes": nodes},
            "habana_frameworks.mediapipe.plugins": {},
            "habana_frameworks.mediapipe.plugins.iterator_pytorch": {"HPUGenericPytorchIterator": self.Iterator},
        }
        return fake_modules(content)


@pytest.fixture
def media(monkeypatch: pytest.MonkeyPatch) -> _FakeMediaFrameworkThatRecordsCalls:
    fake = _FakeMediaFrameworkThatRecordsCalls()
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def test_a_fake_media_loader_gets_padded_files_our_crops_as_shares_and_our_flips(
    shapes: Path, media: _FakeMediaFrameworkThatRecordsCalls
) -> None:
    source, indices = open_split(str(shapes), "train"), np.arange(20, 26)
    reader = GaudiTrainReader(source, Data(image_px=24), Augment(), 3, torch.device("cpu"))
    out = torch.zeros((6, 24, 24, 3), dtype=torch.uint8)
    reader.fill(4, indices, out)
    encoded, crops, flips = media.inputs[0]
    assert all(len(e) % 64 == 0 for e in encoded)
    assert encoded[2].tobytes().rstrip(b"\0") == source.read(22)  # type: ignore[attr-defined]
    assert np.allclose(crops * 32, crop_boxes(indices, 32))
    expected = augment_rows(3, 4, indices)[:, -2] < 0.5
    assert flips.tolist() == expected.astype(int).tolist()
    assert out[:, 0, 0, 0].tolist() == [i + 100 * int(f) for i, f in enumerate(expected)]
    calls = dict(media.calls)
    assert calls["MediaPipe"]["batch_size"] == 6
    assert (calls["ImageDecoder"]["device"], calls["ImageDecoder"]["resize"]) == ("hpu", [24, 24])
    assert [(kind, shape.tolist()) for kind, shape, _ in media.info] == [("ndt", [6]), ("f32", [4, 6]), ("u8", [6])]
    assert reader.targets(indices, []).tolist() == source.labels[indices].tolist()
