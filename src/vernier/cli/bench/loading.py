"""`vernier bench data`."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from vernier.cli.flags import JsonFlag, optional
from vernier.cli.output import print_json, print_rows
from vernier.errors import EXIT_DONE
from vernier.records.codec import encode


def data(
    *,
    data: Annotated[str, optional("PATH")],
    against: Annotated[tuple[Literal["pillow", "dali"], ...], arg(metavar="pillow|dali ...")] = (),
    workers: int = 1,
    rounds: int = 10,
    images: int = 500,
    image_px: int = 224,
    json: JsonFlag = False,
) -> int:
    """Measure how fast images become training batches (RandomResizedCrop, flip), also with other loaders.

    All loaders use the same cores and take turns.

    Args:
        data: What to read: an image folder, shards or raw; the other loaders read image folders only.
        against: Other loaders to compare with.
        workers: Number of threads, or of processes where a loader uses those.
        rounds: Turns per loader.
        images: Images per turn.
        image_px: Side of a training image, in pixels.

    Examples:
        vernier bench data --data photos
        vernier bench data --data photos --against pillow --workers 2
    """
    from vernier.engine.measured.loading import measure_loaders, summarize_loaders
    from vernier.engine.measured.peer_loaders import loaders_of_folder

    specs, pairs = loaders_of_folder(Path(data), workers, against, image_px)
    result = encode(summarize_loaders(measure_loaders(specs, rounds=rounds, images=images), pairs))
    if json:
        print_json(result)
        return EXIT_DONE
    print_rows(result["contenders"], False)
    if result["ratios"]:
        rounded = [
            {k: "unknown" if v is None else round(v, 3) if isinstance(v, float) else v for k, v in ratio.items()}
            for ratio in result["ratios"]
        ]
        print_rows(rounded, False)
    return EXIT_DONE
