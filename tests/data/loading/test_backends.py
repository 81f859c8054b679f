"""Backends for hardware that is not here: refused with a reason, and asked for the right things where fakes stand in for them."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import Done
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import augment_rows, random_crop_box
from vernier.data.loading.dali import DaliTrainReader
from vernier.data.loading.gaudi_media import GaudiTrainReader
from vernier.data.loading.loader import Loader
from vernier.data.sources import Source, open_split
from vernier.errors import ConfigError

no_accelerator = pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")


@no_accelerator
@pytest.mark.parametrize(("backend", "kind"), [("dali-gpu", "cuda"), ("gaudi-media", "hpu")])
def test_a_backend_without_its_device_is_refused_with_what_works(
    vernier_here: Callable[..., Done], tiny: list[str], backend: str, kind: str
) -> None:
    done = vernier_here("train", *tiny, "--set", f"machine.backend={backend}", "--set", "augment.crop=random-resized")
    assert done.code == 2
    assert f"of kind {kind}; none is here" in done.err
    assert "machine.backend=native" in done.err


def test_an_unknown_backend_is_told_the_names(vernier_here: Callable[..., Done], tiny: list[str]) -> None:
    done = vernier_here("train", *tiny, "--set", "machine.backend=dali")
    assert done.code == 2
    assert "native, dali-cpu, dali-gpu, gaudi-media" in done.err


@pytest.mark.skipif(importlib.util.find_spec("habana_frameworks") is not None, reason="SynapseAI is installed")
def test_the_media_loader_without_its_package_is_refused_with_what_works(shapes: Path) -> None:
    with pytest.raises(ConfigError, match=r"habana-media-loader.*machine.backend=native"):
        GaudiTrainReader(open_split(str(shapes), "train"), Data(), Augment(), 1, torch.device("cpu"))


@pytest.mark.parametrize("wanted", [Data(scaled_decode=True), Data(interpolation="bicubic")])
def test_what_a_backend_cannot_do_is_refused(shapes: Path, wanted: Data) -> None:
    with pytest.raises(ConfigError, match=r"machine.backend = dali-cpu crops.*native"):
        DaliTrainReader(open_split(str(shapes), "train"), wanted, Augment(), 1)


def _modules(content: dict[str, dict[str, Any]]) -> dict[str, ModuleType]:
    """Modules with these members, by name."""
    found = {}
    for name, members in content.items():
        found[name] = ModuleType(name)
        found[name].__dict__.update(members)
    return found


class _FakeMediaFrameworkThatRecordsCalls:
    """Stands in for habana_frameworks: runs the graph as the reader describes it, with a decoder that only notes its input."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.seen: list[tuple[list[Any], Any, Any]] = []
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
        made = kwargs["impl"]({"priv_params": {}}, SimpleNamespace(batch_size=6))
        self.info = made.gen_output_info()
        assert made.get_media_output_type() == "buffers"

        def run() -> Any:
            self.seen.append(next(iter(made)))
            return self.seen[-1]

        return run

    def _decoder(self, **kwargs: Any) -> Callable[..., torch.Tensor]:
        self.calls.append(("ImageDecoder", kwargs))
        width, height = kwargs["resize"]
        return lambda encoded, crops: torch.arange(len(encoded), dtype=torch.uint8)[:, None, None, None].expand(-1, height, width, 3)  # fmt: skip

    def _flip(self, **kwargs: Any) -> Callable[..., torch.Tensor]:
        self.calls.append(("RandomFlip", kwargs))
        return lambda images, flips: images + 100 * torch.from_numpy(flips)[:, None, None, None]

    def modules(self) -> dict[str, ModuleType]:
        types = SimpleNamespace(
            dtype=SimpleNamespace(NDT="ndt", FLOAT32="f32", UINT8="u8"), readerOutType=SimpleNamespace(BUFFER_LIST="buffers"),
            imgtype=SimpleNamespace(RGB_I="rgb"), ftype=SimpleNamespace(BI_LINEAR="linear"),
        )  # fmt: skip
        nodes = SimpleNamespace(media_ext_reader_op_impl=object, media_ext_reader_op_tensor_info=lambda *a: a)
        content: dict[str, dict[str, Any]] = {
            "habana_frameworks": {}, "habana_frameworks.mediapipe": {"fn": self.fn, "media_types": types},
            "habana_frameworks.mediapipe.mediapipe": {"MediaPipe": self.MediaPipe}, "habana_frameworks.mediapipe.operators": {},
            "habana_frameworks.mediapipe.operators.reader_nodes": {"reader_nodes": nodes},
            "habana_frameworks.mediapipe.plugins": {},
            "habana_frameworks.mediapipe.plugins.iterator_pytorch": {"HPUGenericPytorchIterator": self.Iterator},
        }  # fmt: skip
        return _modules(content)


@pytest.fixture
def media(monkeypatch: pytest.MonkeyPatch) -> _FakeMediaFrameworkThatRecordsCalls:
    fake = _FakeMediaFrameworkThatRecordsCalls()
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def _boxes(source: Source, indices: np.ndarray, size: int) -> np.ndarray:
    rows = augment_rows(3, 4, indices)
    return np.array([random_crop_box(size, size, Augment(), row) for row in rows])


def test_a_fake_media_loader_gets_padded_files_our_crops_as_shares_and_our_flips(
    shapes: Path, media: _FakeMediaFrameworkThatRecordsCalls
) -> None:
    source, indices = open_split(str(shapes), "train"), np.arange(20, 26)
    reader = GaudiTrainReader(source, Data(image_px=24), Augment(), 3, torch.device("cpu"))
    out = torch.zeros((6, 24, 24, 3), dtype=torch.uint8)
    reader.fill(4, indices, out)
    encoded, crops, flips = media.seen[0]
    assert all(len(e) % 64 == 0 for e in encoded)
    assert encoded[2].tobytes().rstrip(b"\0") == source.read(22)  # type: ignore[attr-defined]
    assert np.allclose(crops * 32, _boxes(source, indices, 32))
    expected = augment_rows(3, 4, indices)[:, -2] < 0.5
    assert flips.tolist() == expected.astype(int).tolist()
    assert out[:, 0, 0, 0].tolist() == [i + 100 * int(f) for i, f in enumerate(expected)]
    calls = dict(media.calls)
    assert calls["MediaPipe"]["batch_size"] == 6
    assert (calls["ImageDecoder"]["device"], calls["ImageDecoder"]["resize"]) == ("hpu", [24, 24])
    assert [(kind, shape.tolist()) for kind, shape, _ in media.info] == [("ndt", [6]), ("f32", [4, 6]), ("u8", [6])]
    assert reader.targets(indices, []).tolist() == source.labels[indices].tolist()


class _FakeDaliThatRecordsCalls:
    """Stands in for nvidia.dali with a GPU: notes the graph and what it is fed."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        self.fed: dict[str, Any] = {}

    def pipeline_def(self, **kwargs: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        self.calls["pipeline"] = kwargs

        def define(graph: Callable[[], Any]) -> Callable[[], Any]:
            def make() -> Any:
                graph()
                result = SimpleNamespace(as_tensor=lambda: "dense", at=None)
                return SimpleNamespace(build=lambda: None, feed_input=self.fed.__setitem__, run=lambda: (result,))

            return make

        return define

    def op(self, name: str) -> Callable[..., str]:
        return lambda *_, **kwargs: (self.calls.setdefault(name, kwargs), name)[1]

    def modules(self) -> dict[str, ModuleType]:
        types = SimpleNamespace(UINT8=0, FLOAT=1, INT32=2, RGB=3, INTERP_LINEAR=4)
        fn = SimpleNamespace(
            external_source=self.op("source"), decoders=SimpleNamespace(image_slice=self.op("decoder")),
            resize=self.op("resize"), flip=self.op("flip"),
        )  # fmt: skip
        torch_side = SimpleNamespace(feed_ndarray=lambda made, out: (self.fed.__setitem__("out", made), out.fill_(7)))
        content: dict[str, dict[str, Any]] = {
            "nvidia": {}, "nvidia.dali": {"fn": fn, "types": types}, "nvidia.dali.pipeline": {"pipeline_def": self.pipeline_def},
            "nvidia.dali.plugin": {"pytorch": torch_side},
        }  # fmt: skip
        return _modules(content)


@pytest.fixture
def dali(monkeypatch: pytest.MonkeyPatch) -> _FakeDaliThatRecordsCalls:
    fake = _FakeDaliThatRecordsCalls()
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def test_a_fake_dali_on_a_gpu_decodes_there_and_leaves_the_images_there(
    shapes: Path, dali: _FakeDaliThatRecordsCalls
) -> None:
    source, indices = open_split(str(shapes), "train"), np.arange(20, 26)
    place = torch.device("meta", 1)  # a device other than the CPU whose memory can be asked for here
    reader = DaliTrainReader(source, Data(image_px=24), Augment(), 3, place)
    loader = Loader(reader, batch=6, workers=1, prefetch=1)
    reader.fill(4, indices, out := torch.zeros((6, 24, 24, 3), dtype=torch.uint8))
    loader.close()
    assert dali.calls["pipeline"]["device_id"] == 1
    assert dali.calls["decoder"]["device"] == "mixed"
    boxes = _boxes(source, indices, 32)
    assert np.array_equal(np.concatenate([dali.fed["anchor"], dali.fed["shape"]], axis=1), boxes)
    assert dali.fed["out"] == "dense"
    assert out.unique().tolist() == [7]
    assert all(buffer.device.type == "meta" for buffer in loader._buffers)


def test_memory_is_not_pinned_on_the_cpu(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    from vernier.data.loading.loader import TrainReader

    loader = Loader(TrainReader(source, Data(image_px=24), Augment(), 1), batch=4, workers=1, prefetch=1)
    (batch,) = loader.batches([(0, np.arange(4))])
    loader.close()
    assert not batch.images.is_pinned()


@no_accelerator
def test_pinned_memory_is_asked_of_torch_which_needs_a_device(shapes: Path) -> None:
    from vernier.data.loading.loader import TrainReader

    source = open_split(str(shapes), "train")
    with pytest.raises(RuntimeError, match="accelerator"):
        Loader(TrainReader(source, Data(image_px=24), Augment(), 1), batch=4, workers=1, prefetch=1, pin=True)
