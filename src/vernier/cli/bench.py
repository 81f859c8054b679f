"""`vernier bench`."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vernier.cli.common import JsonFlag, pathlike, print_json, print_rows
from vernier.errors import EXIT_DONE


def bench(
    what: Positional[Literal["data"]],
    /,
    *,
    data: Annotated[str, pathlike("PATH")],
    against: Annotated[tuple[Literal["pillow", "dali"], ...], arg(metavar="pillow|dali ...")] = (),
    workers: int = 1,
    rounds: int = 10,
    images: int = 500,
    image_px: int = 224,
    json: JsonFlag = False,
) -> int:
    """Measure how fast images become training batches (RandomResizedCrop, flip), beside other loaders on the same cores.

    Args:
        what: data.
        data: What to read: an image folder, shards or raw; the others read image folders only.
        against: Other loaders to take turns with.
        workers: Threads, or processes where a loader uses those.
        rounds: Turns each loader gets.
        images: Images a turn.
        image_px: Side of a training image.
    """
    from vernier.data.bench import compare, folder_contenders, report

    named, pairs = folder_contenders(Path(data), workers, against, image_px)
    found = report(compare(named, rounds=rounds, images=images), pairs)
    if json:
        print_json(found)
        return EXIT_DONE
    print_rows(found["contenders"], False)
    if found["ratios"]:
        print_rows(
            [{k: round(v, 3) if isinstance(v, float) else v for k, v in r.items()} for r in found["ratios"]], False
        )
    return EXIT_DONE
