"""The Gaudi media loader: there is no Gaudi here. A fake records the calls, and the Python half of the real package,
where it is installed, runs them up to the compiled half: `pip install --no-deps --target .venv/habana
habana-media-loader`.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.compat.loaders.fake_decoders import crop_boxes, fake_modules
from tests.conftest import REPO
from vernier.compat.loaders.gaudi_media import GaudiTrainReader
from vernier.config import Augment, Data, Recipe
from vernier.data.augment.crop_flip import augment_rows
from vernier.data.sources import open_split
from vernier.errors import ConfigError


@pytest.mark.skipif(importlib.util.find_spec("habana_frameworks") is not None, reason="SynapseAI is installed")
def test_the_media_loader_without_its_package_is_refused_with_what_works(shapes: Path) -> None:
    with pytest.raises(ConfigError, match=r"habana-media-loader.*machine.backend=native"):
        GaudiTrainReader(
            open_split(str(shapes), "train"), Recipe(data=Data(), augment=Augment(), seed=1), torch.device("cpu")
        )


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


def calls_of(media: _FakeMediaFrameworkThatRecordsCalls, name: str) -> dict[str, Any]:
    return dict(media.calls)[name]


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
    reader = GaudiTrainReader(source, Recipe(data=Data(image_px=24), augment=Augment(), seed=3), torch.device("cpu"))
    out = torch.zeros((6, 24, 24, 3), dtype=torch.uint8)
    reader.fill(4, indices, out)
    encoded, crops, flips = media.inputs[0]
    assert all(len(e) % 64 == 0 for e in encoded)
    assert calls_of(media, "MediaPipe")["prefetch_depth"] == 0
    assert not any(name == "build" for name, _ in media.calls)  # the iterator builds it, after it has set its proxy
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


@pytest.mark.slow
def test_the_real_package_takes_one_request_per_batch_and_hands_it_to_the_decoder(shapes: Path) -> None:
    """With prefetching, or a graph built before its iterator, it waits for ever or answers without tensors."""
    folder = Path(os.environ.get("VERNIER_TEST_HABANA") or REPO / ".venv" / "habana")
    if not (folder / "habana_frameworks").is_dir():
        pytest.skip(f"habana-media-loader is not in {folder} (set VERNIER_TEST_HABANA)")
    script = [sys.executable, "-m", "tests.compat.loaders.habana_media", str(folder), str(shapes)]
    done = subprocess.run(script, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    source = open_split(str(shapes), "train")
    assert answer["resize"] == [24, 24]
    assert answer["frameworks"] == ["PYTHON_FW"] * 2  # one pipeline per batch size, both with PyTorch's tensors
    for indices, batch in zip((range(20, 26), range(26, 32), range(32, 36)), answer["batches"], strict=True):
        images = [bytes.fromhex(image) for image in batch["images"]]
        assert [image.rstrip(b"\0") for image in images] == [source.read(i) for i in indices]  # type: ignore[attr-defined]
        assert np.allclose(np.array(batch["crops"]) * 32, crop_boxes(np.array(indices), 32))
        assert batch["crop_type"] == "float32"
        assert batch["flips"] == (augment_rows(3, 4, np.array(indices))[:, -2] < 0.5).astype(int).tolist()
        assert batch["rows"] == list(range(len(indices)))
