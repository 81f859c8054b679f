"""`vernier bench data`."""

from typing import Annotated, Literal

from tyro.conf import Positional

from vernier import recipes
from vernier.cli.flags import JsonFlag, OptionalInt, ShardCacheFlag, check_shard_cache, optional
from vernier.cli.output import print_json, print_rows, show
from vernier.config import Config, Recipe
from vernier.errors import EXIT_DONE, ConfigError
from vernier.models import is_detector
from vernier.records.codec import encode


def data(
    recipe: Annotated[Positional[str | None], optional("[RECIPE]")] = None,
    /,
    *,
    data: Annotated[str, optional("PATH")],
    against: Annotated[tuple[Literal["compiled", "pillow", "dali"], ...], optional("compiled|pillow|dali ...")] = (),
    workers: OptionalInt = None,
    rounds: int = 10,
    images: int = 500,
    image_px: OptionalInt = None,
    shard_cache_gb: ShardCacheFlag = None,
    json: JsonFlag = False,
) -> int:
    """Measure how fast images become training batches, prepared as a recipe says, also with other loaders.

    All loaders use the same cores and take turns. Every image is decoded every time, as in the first epoch of a
    training; later ones are faster where decoded images fit into memory.

    Args:
        recipe: Prepare images as this recipe or network does. Default: RandomResizedCrop to 224 pixels, and flips.
        data: What to read: an image folder, shards (also at an address) or raw; pillow and dali read image folders
            only.
        against: Other loaders to compare with; compiled is Vernier's with machine.backend=compiled.
        workers: Number of threads, or of processes where a loader uses those. Default: 2, as in training.
        rounds: Turns per loader.
        images: Images per turn.
        image_px: Side of a training image, in pixels. Default: the recipe's, or 224.

    Examples:
        vernier bench data --data photos
        vernier bench data resnet50 --data photos --against pillow --workers 2
    """
    for flag, value in (("--rounds", rounds), ("--images", images)):
        if value < 1:
            raise ConfigError(f"{flag} {value} is out of range: it must be 1 or more.")
    start = recipes.load(recipe) if recipe is not None else Config(recipe=Recipe(name="plain"))
    if workers == 0:
        raise ConfigError("--workers 0: a loader is measured with 1 thread or more.")
    check_shard_cache(data, shard_cache_gb)
    flags = {"data.image_px": image_px, "machine.workers": workers, "machine.shard_cache_gb": shard_cache_gb}
    config = recipes.change(start, flags, ()).config
    from vernier.data.sources.opening import check_source
    from vernier.measure.bench.combinations import at_final_size

    config, notes = at_final_size(config)
    from vernier.engine.measured.loading import measure_loaders, summarize_loaders
    from vernier.engine.measured.peer_loaders import loaders_of_folder

    specs, pairs = loaders_of_folder(data, config.machine, against, config.recipe)
    check_source(data, detector=is_detector(config.recipe.model.name))
    result = encode(summarize_loaders(measure_loaders(specs, rounds=rounds, images=images), pairs))
    if json:
        print_json(result)
        return EXIT_DONE
    show(result["what_ran"], *notes)
    print_rows(result["contenders"], False)
    if result["ratios"]:
        rounded = [
            {k: "unknown" if v is None else round(v, 3) if isinstance(v, float) else v for k, v in ratio.items()}
            for ratio in result["ratios"]
        ]
        print_rows(rounded, False)
    return EXIT_DONE
