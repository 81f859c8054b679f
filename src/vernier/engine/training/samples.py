"""The first training images of a run as the network is given them: for those who want to look at the augmentation."""

import numpy as np
import numpy.typing as npt

from vernier.engine.training.setup import Job


def first_images(job: Job, most: int = 16) -> npt.NDArray[np.uint8]:
    """uint8 [images, height, width, channels] of the first batch, through the run's own loader."""
    indices = job.order.indices(0, 0, 0)[:most]
    (batch,) = job.loader.batches([(0, indices)])
    return batch.images.permute(0, 2, 3, 1).numpy().copy()
