"""How an exported network was checked; printed by `vernier export --json` and written into the model card."""

from vernier.frozen import frozen


@frozen
class ExportCheck:
    """An exported network and PyTorch's on the same validation images. `against` is the runtime that ran the export.

    `max_difference` and `largest_output` are over all outputs. `same_top1` counts images with the same most likely class;
    None where an image has more than one answer.
    """

    against: str
    images: int
    data: str
    max_difference: float
    largest_output: float
    same_top1: int | None
