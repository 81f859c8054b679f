"""Prediction on single images, with the reader and the network that evaluation uses. Showing them is `report`'s."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vernier.config import override
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import EvalOrder
from vernier.data.sources.files import FilesSource, find_images
from vernier.records.predictions import ImagePrediction
from vernier.tasks import task_of

from .evaluate import evaluating
from .trained import Trained

BATCH = 16


def predict(trained: Trained, images: list[Path]) -> Iterator[tuple[ImagePrediction, int, int]]:
    """For each image file, also those in folders, in order: the prediction, how many are done, and of how many."""
    recipe = override(trained.config, "data.max_bad_images", "100%").recipe
    task, paths, machine = task_of(recipe), find_images(images), trained.config.machine
    source = FilesSource(paths, trained.classes, trained.channels)
    reader, torch_device = task.eval_reader(source), trained.device.torch_device(0)
    loader = Loader(reader, batch=BATCH, workers=machine.workers, prefetch=machine.prefetch)
    normalize = None if trained.takes_pixels else Normalizer(recipe.data, torch_device)

    def forward(pixels: Any) -> Any:
        with trained.device.autocast(machine.precision):
            return trained.model(pixels)

    done = 0
    try:
        order = EvalOrder(samples=len(source), batch=BATCH).own_batches()
        with evaluating(trained.model, trained.device):
            for batch in loader.batches((0, indices) for indices in order):
                pixels = trained.device.upload(batch.images, torch_device)
                predicted = task.predict(forward, pixels if normalize is None else normalize(pixels))
                trained.device.uploads_done()
                errors = {bad.index: bad.reason for bad in reader.bad.samples()}
                for scored in task.name_predictions(predicted, batch.targets, trained.classes):
                    image, error = str(paths[done]), errors.get(done)
                    predictions = () if error else tuple(scored)
                    done += 1
                    yield ImagePrediction(image=image, error=error, predictions=predictions), done, len(paths)
    finally:
        loader.close()
