"""DALI's CPU pipelines where DALI is installed, and its GPU pipeline with a fake that records the calls."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.compat.loaders.fake_decoders import crop_boxes, fake_modules
from tests.conftest import Done
from vernier.compat.loaders.dali import DaliTrainReader
from vernier.config import Augment, Data, Recipe
from vernier.data.loading.loader import Loader
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import open_split
from vernier.errors import ConfigError, RunFailed

_INSTALLED = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None
needs_dali = pytest.mark.skipif(not _INSTALLED, reason="the extra 'dali' is not installed")


@needs_dali
def test_the_same_crops_and_flips_as_the_native_backend(shapes: Path) -> None:
    source, data = open_split(str(shapes), "train"), Data(image_px=24)
    out = np.empty((2, 40, 24, 24, 3), np.uint8)
    for reader, into in (
        (TrainReader(source, data, Augment(), 3), out[0]),
        (DaliTrainReader(source, Recipe(data=data, augment=Augment(), seed=3)), out[1]),
    ):
        reader.fill(4, np.arange(40), into)
    assert np.abs(out[0].astype(int) - out[1]).mean() < 1.5


@needs_dali
def test_pixels_do_not_depend_on_workers(shapes: Path) -> None:
    source, streams = open_split(str(shapes), "train"), []
    for workers in (1, 3):
        reader = DaliTrainReader(source, Recipe(data=Data(image_px=24), augment=Augment(), seed=3))
        loader = Loader(reader, batch=20, workers=workers, prefetch=2)
        batches = loader.batches((e, np.arange(i, i + 20)) for e in (0, 1) for i in range(0, 80, 20))
        streams.append(np.stack([b.images.numpy().copy() for b in batches]))
        loader.close()
    assert np.array_equal(*streams)


@needs_dali
def test_a_bad_image_is_named(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "train/a").mkdir(parents=True)
    good = min((shapes / "train").rglob("*.jpg")).read_bytes()
    for name, content in (("1.jpg", good), ("2.jpg", good[:-100]), ("3.jpg", b"nothing")):
        (tmp_path / "train/a" / name).write_bytes(content)
    reader = DaliTrainReader(
        open_split(str(tmp_path), "train"), Recipe(data=Data(image_px=24), augment=Augment(), seed=3)
    )
    with pytest.raises(RunFailed, match=r"3\.jpg"):
        reader.fill(0, np.array([0, 2]), np.empty((2, 24, 24, 3), np.uint8))


@needs_dali
def test_a_run_with_dali_records_the_backend(
    vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path
) -> None:
    more = "--set machine.backend=dali-cpu --set augment.crop=random-resized --max-steps 2 --train-only"
    done = vernier_here("train", *tiny, *more.split())
    assert done.code == 0, done.err
    events = next((tmp_path / "runs").rglob("events.jsonl")).read_text()
    assert '"backend": "dali-cpu"' in events


def test_decoded_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dali-cpu needs encoded images.*machine\.backend=native"):
        DaliTrainReader(open_split("synthetic", "train"), Recipe(data=Data(), augment=Augment(), seed=1))


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
            external_source=self.op("source"),
            decoders=SimpleNamespace(image_slice=self.op("decoder")),
            resize=self.op("resize"),
            flip=self.op("flip"),
        )
        torch_side = SimpleNamespace(
            feed_ndarray=lambda images, out: (self.fed.__setitem__("out", images), out.fill_(7))
        )
        content: dict[str, dict[str, Any]] = {
            "nvidia": {},
            "nvidia.dali": {"fn": fn, "types": types},
            "nvidia.dali.pipeline": {"pipeline_def": self.pipeline_def},
            "nvidia.dali.plugin": {"pytorch": torch_side},
        }
        return fake_modules(content)


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
    device = torch.device("meta", 1)  # a device other than the CPU whose memory can be allocated here
    reader = DaliTrainReader(source, Recipe(data=Data(image_px=24), augment=Augment(), seed=3), device)
    loader = Loader(reader, batch=6, workers=1, prefetch=1)
    reader.fill(4, indices, out := torch.zeros((6, 24, 24, 3), dtype=torch.uint8))
    loader.close()
    assert dali.calls["pipeline"]["device_id"] == 1
    assert dali.calls["decoder"]["device"] == "mixed"
    boxes = crop_boxes(indices, 32)
    assert np.array_equal(np.concatenate([dali.fed["anchor"], dali.fed["shape"]], axis=1), boxes)
    assert dali.fed["out"] == "dense"
    assert out.unique().tolist() == [7]
    assert all(buffer.images.device.type == "meta" for buffer in loader._buffers)


def test_a_bad_image_ends_the_run_with_its_name_and_what_works(
    tmp_path: Path,
    dali: _FakeDaliThatRecordsCalls,
) -> None:
    (tmp_path / "train/a").mkdir(parents=True)
    (tmp_path / "train/a/1.jpg").write_bytes(b"nothing")
    reader = DaliTrainReader(
        open_split(str(tmp_path), "train"), Recipe(data=Data(image_px=24), augment=Augment(), seed=3)
    )
    with pytest.raises(RunFailed, match=r"1\.jpg.*cannot replace bad images.*machine\.backend=native"):
        reader.fill(0, np.array([0]), np.empty((1, 24, 24, 3), np.uint8))
