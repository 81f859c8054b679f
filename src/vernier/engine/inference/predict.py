"""Prediction on single images, with the reader and the network that evaluation uses. Showing them is `report`'s."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from vernier.config import override
from vernier.data.augment.normalize import Normalizer
from vernier.data.decoding.decode import Image
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import EvalOrder
from vernier.data.sources.files import FilesSource
from vernier.engine.execution import Execution, evaluating
from vernier.errors import RunFailed
from vernier.records.predictions import ImagePrediction
from vernier.tasks import task_of

from .evaluate import with_engine
from .trained import Trained

BATCH = 16


def with_engine_for(trained: Trained, images: Sequence[Path | Image]) -> Trained:
    """The model, run by the engine of its settings, which is checked on these images."""
    # One damaged photograph is reported beside the others; training would end the run.
    readable = override(trained.config, "data.max_bad_images", "100%")
    source = FilesSource(images, trained.classes, trained.channels)
    return with_engine(replace(trained, config=readable), source, batch=min(BATCH, len(source)), labelled=False)


def predict(trained: Trained, images: Sequence[Path | Image]) -> Iterator[tuple[ImagePrediction, int, int]]:
    """For each image, a file or RGB pixels, in order: the prediction, how many are done, and of how many."""
    recipe = override(trained.config, "data.max_bad_images", "100%").recipe
    task, machine = task_of(recipe), trained.config.machine
    source = FilesSource(images, trained.classes, trained.channels)
    reader, torch_device = task.eval_reader(source), trained.device.torch_device(0)
    loader = Loader(reader, batch=BATCH, workers=machine.workers, prefetch=machine.prefetch)
    normalize = None if trained.takes_pixels else Normalizer(recipe.data, torch_device)

    # Folding copies the weights, which pays off after a few batches only.
    several = len(source) > 2 * BATCH and trained.device.folds_batch_norm
    forward = Execution(
        trained.model, replace(machine, mode="eager"), trained.device, frozen=several
    ).evaluation_network(BATCH)
    # Predictions come in the order of the images, so that this count is the index of the next one.
    done = 0
    try:
        order = EvalOrder(samples=np.arange(len(source)), batch=BATCH).own_batches()
        with evaluating(trained.model, trained.device):
            for batch in loader.batches((0, indices) for indices in order):
                pixels = trained.device.upload(batch.images, torch_device)
                predicted = task.predict(forward, pixels if normalize is None else normalize(pixels))
                errors = {bad.index: bad.reason for bad in reader.bad.samples()}
                for scored in task.name_predictions(predicted, batch.targets, trained.classes):
                    image, error = source.describe(done), errors.get(done)
                    predictions = () if error else tuple(scored)
                    done += 1
                    yield ImagePrediction(image=image, error=error, predictions=predictions), done, len(source)
    finally:
        loader.close()


def prepare_image(trained: Trained, image: Path | Image) -> torch.Tensor:
    """One image as evaluation prepares it for the network: [channels, height, width], normalised.

    Of a network that takes pixels: uint8. Raises RunFailed for an image that cannot be read.
    """
    recipe = override(trained.config, "data.max_bad_images", "100%").recipe
    source = FilesSource([image], trained.classes, trained.channels)
    reader = task_of(recipe).eval_reader(source)
    # A batch of one: readers fill batches.
    pixels = torch.zeros((1, *reader.shape), dtype=torch.uint8)
    reader.fill(0, np.zeros(1, np.int64), pixels.numpy())
    for bad in reader.bad.samples():
        raise RunFailed(f"{bad.path} cannot be read: {bad.reason}.")
    batch = pixels.permute(0, 3, 1, 2)
    return (batch if trained.takes_pixels else Normalizer(recipe.data, torch.device("cpu"))(batch))[0].contiguous()
