"""NVIDIA DALI on the CPU: an optional extra, for comparison and for those who have standardised on it."""

from typing import Any

from vernier.errors import ConfigError


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
    import numpy as np

    fn, types, pipeline_def = _modules()

    @pipeline_def(batch_size=len(encoded), num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        files = fn.external_source(lambda: [np.frombuffer(e, np.uint8) for e in encoded], dtype=types.UINT8)
        return fn.decoders.image(files, device="cpu", output_type=types.RGB)

    built = pipeline()
    built.build()
    (images,) = built.run()
    return [images.at(i) for i in range(len(encoded))]
