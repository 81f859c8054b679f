"""`vernier data ...`: one function per action, which reads its flags, calls `vernier.data`, and prints the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vernier.cores import allowed_cores
from vernier.data.unfinished import locked_folder, mark_unfinished
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError
from vernier.folders import data_home
from vernier.records.codec import encode
from vernier.wording import plural

from .flags import JsonFlag, OptionalDir, OptionalInt, QuietFlag, ShardCacheFlag, Switch, check_shard_cache, optional
from .output import bytes_bar, print_json, print_result, progress_bar, say, set_quiet, show

if TYPE_CHECKING:
    from vernier.data.preparing.packing import PackedSplit
    from vernier.data.preparing.verify import VerifyResult
    from vernier.data.sources import EncodedSource, Source

Data = Annotated[Positional[str], arg(metavar="NAME|PATH", help="A data set as `vernier train --data` takes it.")]
Paths = Annotated[
    Positional[tuple[str, ...]],
    arg(
        metavar="SRC... OUT",
        help="Files or folders to read, and last the folder to write to.",
        help_behavior_hint="(required)",
    ),
]
Layout = Annotated[
    Literal["folders", "shards", "raw", "tfrecord"],
    arg(
        name="format",
        help="folders: image files, one folder per class; shards: tar files, for large sets and slow disks; raw: "
        "decoded images, for small sets that fit into memory; tfrecord: for systems that read TensorFlow's files, also "
        "of a folder with COCO's layout. coco's zips are always unpacked as they are.",
    ),
]
ValLabels = Annotated[
    str | None,
    optional(
        "FILE",
        help="imagenet without the devkit: a file with one line per validation image in order of file name, its synset "
        "or the synset's position from 0; or the devkit's ILSVRC2012_validation_ground_truth.txt beside its meta.mat.",
    ),
]
Expect = Annotated[
    tuple[int, int, int] | None,
    optional(
        "CLASSES TRAIN VAL",
        help="imagenet and coco: the numbers of classes, training and validation images, if not the official ones "
        "(coco ignores CLASSES).",
    ),
]
Files = Annotated[
    tuple[int, int] | None,
    optional(
        "TRAIN VAL",
        help="tfrecord: the numbers of files (default: imagenet 1024 128, coco 256 32, as their readers expect; folder "
        "one per 1,000 images).",
    ),
]
ValShare = Annotated[
    float, arg(help="For a folder without train/ and val/: share of every class for validation, 0 to 1.")
]
Workers = Annotated[int | None, optional("N", help="Threads (default: one per core).")]


def make(
    name: Positional[Literal["shapes"]] = "shapes",
    /,
    *,
    out: OptionalDir = None,
    kind: Literal["classify", "detect"] = "classify",
    train: OptionalInt = None,
    val: OptionalInt = None,
    size_px: OptionalInt = None,
    seed: int = 0,
    json: JsonFlag = False,
) -> int:
    """Make the built-in data set: rendered shapes as JPEG files, one folder per class, with boxes.

    Args:
        name: Name of the set: shapes.
        out: Folder to write to (default: Vernier's cache, where --data shapes looks).
        kind: classify: one object per image; detect: several objects with boxes.
        train: Number of training images (default: 8000).
        val: Number of validation images (default: 1000).
        size_px: Width and height of an image in pixels (default: 64 for classify, 160 for detect).
        seed: Random seed; another seed renders another set.

    Examples:
        vernier data make
        vernier data make shapes --out shapes --train 2000 --val 500 --size-px 96
    """
    from vernier.data import shapes

    numbers = {k: v for k, v in {"train": train, "val": val, "size_px": size_px}.items() if v is not None}
    spec = shapes.ShapesSpec(kind=kind, seed=seed, **numbers)
    path = shapes.make_shapes(Path(out).expanduser(), spec) if out else shapes.make_cached_shapes(spec)
    print_result({"path": path}, json, _path_line)
    return EXIT_DONE


def _path_line(result: dict[str, Path]) -> list[str]:
    return [str(result["path"])]


def _check(val_share: float, **counts: int | None) -> None:
    """Raises ConfigError for numbers out of range."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: give a whole number, 1 or more.")
    if not 0 < val_share < 1:
        raise ConfigError(f"--val-share {val_share:g}: give a share between 0 and 1, such as 0.1.")


def prepare(
    kind: Positional[Literal["folder", "imagenet", "coco", "tfrecord"]],
    paths: Paths,
    /,
    *,
    layout: Layout = "folders",
    val_labels: ValLabels = None,
    short_side_px: int = 256,
    shard_mb: int = 512,
    restarts: bool = True,
    files: Files = None,
    val_share: ValShare = 0.1,
    workers: Workers = None,
    expect: Expect = None,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Write a data set in the form it is trained from.

    folder and tfrecord take one SRC that --data would accept. imagenet takes ILSVRC2012_img_train.tar,
    ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, and reads them in place. coco takes the zips of images and
    annotations, and unpacks them side by side.

    Args:
        kind: Kind of SRC.
        short_side_px: raw: shrink images until their short side has this many pixels.
        shard_mb: shards: size of one file in MiB.
        restarts: shards: rewrite JPEGs without loss so that a crop can be decoded alone.

    Examples:
        vernier data prepare imagenet ILSVRC2012_*.tar ILSVRC2012_devkit_t12.tar.gz imagenet
        vernier data prepare folder photos photos-shards --format shards
        vernier data prepare coco coco coco-records --format tfrecord
    """
    set_quiet(quiet)
    _check(val_share, short_side_px=short_side_px, shard_mb=shard_mb, workers=workers)
    if len(paths) < 2:
        raise ConfigError(f"Give what to read and where to write: vernier data prepare {kind} SRC OUT.")
    out = Path(paths[-1]).expanduser()
    if kind in ("imagenet", "coco"):
        sources = [Path(p).expanduser() for p in paths[:-1]]
        if missing := [str(p) for p in sources if not p.exists()]:
            raise ConfigError(f"{', '.join(missing)} does not exist.")
    if kind == "coco" and layout != "tfrecord":
        return _prepare_coco(sources, out, layout, expect, json)
    numbers = _numbers_of_files(files, kind, layout)
    from vernier.data.preparing.packing import forget_progress
    from vernier.data.preparing.prepare import open_encoded, prepare_split

    if any(Path(p).expanduser().resolve() == out.resolve() for p in paths[:-1]):
        raise ConfigError(f"{out} is both SRC and OUT. Choose another folder to write to.")
    if kind == "coco":
        splits = _open_coco(sources)
    elif kind == "imagenet":
        splits = _open_imagenet(sources, val_labels, expect)
    elif len(paths) == 2:
        splits = open_encoded(paths[0], layout, val_share)
    else:
        raise ConfigError(f"{kind} takes one SRC, {len(paths) - 1} were given: {', '.join(paths[:-1])}.")
    packed = []
    with _writing(out, f"vernier data prepare {kind}"):
        for split, source in splits.items():
            with progress_bar(split) as progress:
                packed.append(
                    prepare_split(
                        source,
                        out,
                        split,
                        layout=layout,
                        short_side_px=short_side_px,
                        shard_mb=shard_mb,
                        restarts=restarts,
                        workers=workers or len(allowed_cores()),
                        files=numbers.get(split),
                        progress=progress,
                    )
                )
        forget_progress(out)
    print_result(packed, json, lambda splits: [line for split in splits for line in _packed_lines(split)])
    return EXIT_DONE


@contextmanager
def _writing(out: Path, by: str) -> Iterator[None]:
    """Lock and mark the folder that a command writes to."""
    with locked_folder(out, by) as note:
        if note:
            say(f"note: {note}")
        with mark_unfinished(out, by):
            yield


def _numbers_of_files(files: tuple[int, int] | None, kind: str, layout: str) -> dict[str, int]:
    """The number of TFRecord files per split; empty: by the number of images."""
    from vernier.data.preparing.tfrecord import COCO_FILES, IMAGENET_FILES

    if files is None:
        return {"imagenet": IMAGENET_FILES, "coco": COCO_FILES}.get(kind, {})
    if layout != "tfrecord":
        raise ConfigError(f"--files is for --format tfrecord, not {layout}. Leave it out.")
    if min(files) < 1:
        raise ConfigError(f"--files {files[0]} {files[1]}: give two whole numbers, 1 or more.")
    return dict(zip(("train", "val"), files, strict=True))


def _open_coco(sources: list[Path]) -> "dict[str, EncodedSource]":
    """An unpacked COCO, to be written as TFRecord files."""
    from vernier.data.preparing.prepare import open_annotated

    if len(sources) != 1 or not sources[0].is_dir():
        raise ConfigError(
            "--format tfrecord reads COCO from a folder. Unpack the zips first: vernier data prepare coco ZIPS coco; "
            "then: vernier data prepare coco coco OUT --format tfrecord."
        )
    return open_annotated(sources[0])


def _open_imagenet(
    archives: list[Path], val_labels: str | None, counts: tuple[int, int, int] | None
) -> "dict[str, EncodedSource]":
    from vernier.data.preparing.imagenet import OFFICIAL_COUNTS, open_imagenet

    with bytes_bar("imagenet") as progress:
        return open_imagenet(archives, val_labels, counts or OFFICIAL_COUNTS, progress)


def _prepare_coco(sources: list[Path], out: Path, layout: str, expect: tuple[int, int, int] | None, json: bool) -> int:
    from vernier.data.preparing.prepare import prepare_coco

    if layout != "folders":
        raise ConfigError(f"--format {layout} cannot hold boxes: COCO is unpacked as it is. Leave --format out.")
    expected = None if expect is None else {"train": expect[1], "val": expect[2]}
    with _writing(out, "vernier data prepare coco"), bytes_bar("coco") as progress:
        counts = prepare_coco(sources, out, expected, progress)
    print_result(counts, json, lambda splits: (f"{split}  {n:,} images" for split, n in splits.items()))
    return EXIT_DONE


def _packed_lines(packed: "PackedSplit") -> list[str]:
    line = f"{packed.split}  {packed.samples:,} images, {packed.bytes / 2**20:,.1f} MiB"
    if packed.source_bytes:
        line += f" in {plural(packed.shards, 'shard')} from {packed.source_bytes / 2**20:,.1f} MiB; "
        line += f"{packed.restart_indexed:,} restart-indexed, {packed.kept_as_they_are:,} unchanged"
    if packed.files:
        line += f" in {plural(packed.files, 'file')}"
        line += f"; {packed.converted:,} were no RGB JPEG and were converted" if packed.converted else ""
    if packed.continued_after:
        line += f"; {packed.continued_after:,} images of an earlier run were kept"
    return [line, *(f"  left out: {image}" for image in packed.left_out)]


def _open_splits(data: str, val_share: float, shard_cache_gb: float | None) -> "dict[str, Source]":
    """The splits of a set; prints a note for each that is missing."""
    check_shard_cache(data, shard_cache_gb)
    from vernier.data.preparing.verify import open_splits
    from vernier.data.sources.containers.tables import watched_scans

    with bytes_bar("opening") as progress, watched_scans(progress):
        splits, missing = open_splits(data, val_share, shard_cache_gb=shard_cache_gb)
    for reason in missing.values():
        say(f"note: {reason}")
    return splits


def verify(
    data: Data,
    /,
    *,
    val_share: ValShare = 0.1,
    workers: Workers = None,
    shard_cache_gb: ShardCacheFlag = None,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Decode every image strictly, check the hashes of shards, and look for images that are in more than one split.

    Ends with exit code 1 if an image or a shard is bad, or if an image is in more than one split.

    Examples:
        vernier data verify photos
        vernier data verify photos --json
        vernier data verify https://example.org/photos-shards --shard-cache-gb 5
    """
    set_quiet(quiet)
    from vernier.data.preparing.verify import verify as run

    _check(val_share, workers=workers)
    splits = _open_splits(data, val_share, shard_cache_gb)
    for note in dict.fromkeys(note for source in splits.values() for note in source.notes):
        say(f"note: {note}")
    with progress_bar("verify") as progress:
        result = run(splits, workers or len(allowed_cores()), progress)
    print_result(result, json, _verification_lines)
    return EXIT_DONE if result.sound else EXIT_FAILED


def _verification_lines(result: "VerifyResult") -> list[str]:
    counts = ", ".join(f"{split} {n:,}" for split, n in result.images.items())
    return [
        *(f"note       {note}" for note in result.uncovered),
        *(f"bad        {problem}" for problem in result.bad),
        *(f"in two     {pair}" for pair in result.duplicates),
        f"{counts} images; {len(result.bad)} bad, {len(result.duplicates)} in more than one split, "
        f"{sum(result.repeated.values())} repeated within a split",
    ]


def inspect(
    data: Data,
    /,
    *,
    sheet: Annotated[str | None, optional("FILE.png")] = None,
    compare_backends: Switch = False,
    val_share: ValShare = 0.1,
    shard_cache_gb: ShardCacheFlag = None,
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Show what is in a data set: counts, image sizes, class balance.

    Args:
        sheet: Also write a PNG with 40 images of the training split, with their classes and boxes.
        compare_backends: Also decode 50 images with Pillow and DALI and print how far their pixels are from Vernier's.

    Examples:
        vernier data inspect photos
        vernier data inspect photos --sheet photos.png
    """
    set_quiet(quiet)
    from vernier.data.preparing import inspect as inspecting

    _check(val_share)
    splits = _open_splits(data, val_share, shard_cache_gb)
    facts = {"splits": encode(inspecting.describe(splits))}
    first = next(iter(splits.values()))
    if sheet:
        inspecting.draw_contact_sheet(first, Path(sheet).expanduser())
        facts["sheet"] = sheet
    if compare_backends:
        facts["backends"] = encode(inspecting.compare_backends(first))
    if json:
        print_json(facts)
        return EXIT_DONE
    for split, about in facts["splits"].items():
        notes = [f"  note: {note}" for note in about.pop("notes", ())]
        show(split, *(f"  {k.replace('_', ' '):28s} {_shown(v)}" for k, v in about.items()), *notes)
    for row in facts.get("backends", []):
        show("  ".join(f"{k.replace('_', ' ')} {v}" for k, v in row.items()))
    if sheet:
        show(f"contact sheet  {sheet}")
    return EXIT_DONE


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v:g}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def get(
    name: Annotated[Positional[str], arg(metavar="cifar10|fashion-mnist|imagenette|coco")],
    /,
    *,
    out: OptionalDir = None,
    mirror: Annotated[str, optional("URL")] = "",
    quiet: QuietFlag = False,
    json: JsonFlag = False,
) -> int:
    """Download a public data set, check it and unpack it. An interrupted download resumes.

    Args:
        name: Name of the set.
        out: Folder to write to (default: Vernier's cache, where --data looks for the name).
        mirror: Download from this address instead; it must have files of the same names.

    Examples:
        vernier data get cifar10
        vernier data get imagenette --out imagenette
    """
    set_quiet(quiet)
    from vernier.data.preparing.fetch import get as fetch

    folder = Path(out).expanduser() if out else data_home() / name
    with locked_folder(folder, f"vernier data get {name}") as note, bytes_bar(name) as progress:
        if note:
            say(f"note: {note}")
        path = fetch(name, folder, mirror=mirror, progress=progress)
    print_result({"path": path}, json, _path_line)
    return EXIT_DONE


COMMANDS: dict[str, Callable[..., int]] = {
    "make": make,
    "prepare": prepare,
    "verify": verify,
    "inspect": inspect,
    "get": get,
}
