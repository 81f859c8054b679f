"""`vernier data ...`: one function an action, which reads its flags, calls the code that does the work, and prints."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, OptionalInt
from vernier.cli.output import bytes_bar, print_json, progress_bar, say
from vernier.cores import allowed_cores
from vernier.errors import EXIT_DONE, EXIT_FAILED, ConfigError

if TYPE_CHECKING:
    from vernier.data.preparing.pack import Packed
    from vernier.data.sources import EncodedSource

Out = Annotated[str | None, arg(metavar="DIR", help_behavior_hint="")]
Paths = Annotated[Positional[tuple[str, ...]], arg(metavar="SRC... OUT")]
Layout = Literal["folders", "shards", "raw"]


def _cores() -> int:
    return len(allowed_cores())


def make(
    name: Positional[Literal["shapes"]] = "shapes",
    /,
    *,
    out: Out = None,
    kind: Literal["classify", "detect"] = "classify",
    train: OptionalInt = None,
    val: OptionalInt = None,
    size_px: OptionalInt = None,
    seed: int = 0,
    json: JsonFlag = False,
) -> int:
    """Make the built-in data set: rendered shapes as JPEG files, one folder per class, with boxes.

    Args:
        name: shapes.
        out: Where to put it; left out: Vernier's cache.
        kind: One object per image, or several with boxes for detection.
        train: Training images.
        val: Validation images.
        size_px: Side of an image.
        seed: Another seed, another set.
    """
    from vernier.data.shapes import files as shapes

    given = {k: v for k, v in {"train": train, "val": val, "size_px": size_px}.items() if v is not None}
    spec = shapes.ShapesSpec(kind=kind, seed=seed, **given)
    path = shapes.make(Path(out).expanduser(), spec) if out else shapes.cached(spec)
    print_json({"path": str(path)}) if json else sys.stdout.write(f"{path}\n")
    return EXIT_DONE


def _check(val_share: float, **counts: int | None) -> None:
    """Raises ConfigError for numbers that make no sense."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: a whole number from 1 on is needed.")
    if not 0 < val_share < 1:
        raise ConfigError(f"--val-share {val_share:g}: a share between 0 and 1 is needed, such as 0.1.")


def prepare(
    kind: Positional[Literal["folder", "imagenet", "coco", "tfrecord"]],
    paths: Paths,
    /,
    *,
    layout: Annotated[Layout, arg(name="format")] = "folders",
    val_labels: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None,
    short_side_px: int = 256,
    shard_mb: int = 512,
    restarts: bool = True,
    val_share: float = 0.1,
    workers: OptionalInt = None,
    expect: Annotated[tuple[int, int, int] | None, arg(metavar="CLASSES TRAIN VAL", help_behavior_hint="")] = None,
    json: JsonFlag = False,
) -> int:
    """Write a data set in the form it is trained from: vernier data prepare KIND SRC... OUT

    folder and tfrecord: one SRC that --data would accept. imagenet: the tars ILSVRC2012_img_train.tar,
    ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, read in place. coco: the zips of images and annotations, unpacked side by side.

    Args:
        kind: What SRC is.
        paths: What to read, and last where to write.
        layout: folders: as files, one folder per class; shards: tar files of which crops can be cut; raw: decoded, for
            repeated epochs on small sets. coco is unpacked as it is.
        val_labels: imagenet, without the devkit among SRC: a line per validation image in order of file name, its synset
            or the synset's position; or the devkit's ILSVRC2012_validation_ground_truth.txt with meta.mat beside it.
        short_side_px: raw: images are made smaller until their short side is this.
        shard_mb: shards: size of a file, MiB.
        restarts: shards: rewrite baseline JPEGs without loss so that a crop is decoded alone; needs jpegtran.
        val_share: A folder without train/ and val/: share of every class for validation.
        workers: Threads; left out: one a core.
        expect: imagenet and coco: counts other than the official ones (coco has no use for CLASSES).
    """
    _check(val_share, short_side_px=short_side_px, shard_mb=shard_mb, workers=workers)
    if len(paths) < 2:
        raise ConfigError(f"Say what to read and where to write: vernier data prepare {kind} SRC OUT.")
    out = Path(paths[-1]).expanduser()
    if kind in ("imagenet", "coco"):
        sources = [Path(p).expanduser() for p in paths[:-1]]
        if missing := [str(p) for p in sources if not p.exists()]:
            raise ConfigError(f"{', '.join(missing)} does not exist.")
    if kind == "coco":
        return _prepare_coco(sources, out, layout, expect, json)
    from vernier.data.preparing.pack import forget_progress
    from vernier.data.preparing.prepare import prepare_split
    from vernier.data.unfinished import mark_unfinished

    if any(Path(p).expanduser().resolve() == out.resolve() for p in paths[:-1]):
        raise ConfigError(f"{out} is what is read. Choose another folder to write into.")
    opened = (
        _imagenet(sources, val_labels, expect) if kind == "imagenet" else _opened(list(paths[:-1]), layout, val_share)
    )
    done = []
    with mark_unfinished(out, f"vernier data prepare {kind}"):
        for split, source in opened.items():
            with progress_bar(split) as progress:
                packed = prepare_split(
                    source, out, split, layout=layout, short_side_px=short_side_px, shard_mb=shard_mb, restarts=restarts,
                    workers=workers or _cores(), progress=progress,
                )  # fmt: skip
            done.append(packed)
        forget_progress(out)
    print_json([asdict(d) for d in done]) if json else sys.stdout.write("".join(_packed_line(d) for d in done))
    return EXIT_DONE


def _opened(sources: list[str], layout: str, val_share: float) -> dict[str, "EncodedSource"]:
    from vernier.data.preparing.prepare import open_encoded
    from vernier.data.sources import FolderSource

    if len(sources) != 1:
        raise ConfigError(f"One SRC to read is needed, {len(sources)} were given: {', '.join(sources)}.")
    found = {split: open_encoded(sources[0], split, val_share) for split in ("train", "val")}
    if layout == "folders" and isinstance(found["train"], FolderSource):
        raise ConfigError(
            f"{sources[0]} has folders of images already. Say what to make of it: --format shards or --format raw."
        )
    return {split: source for split, source in found.items() if source is not None}


def _imagenet(
    sources: list[Path], val_labels: str | None, expect: tuple[int, int, int] | None
) -> dict[str, "EncodedSource"]:
    from vernier.data.preparing.prepare import IMAGENET_CLASSES, IMAGENET_SAMPLES, imagenet_train, imagenet_val

    classes, train_count, val_count = expect or (IMAGENET_CLASSES, IMAGENET_SAMPLES["train"], IMAGENET_SAMPLES["val"])
    train = next((p for p in sources if "train" in p.name), None)
    val = next((p for p in sources if "val" in p.name), None)
    devkit = next((str(p) for p in sources if "devkit" in p.name), None)
    if unknown := [str(p) for p in sources if p not in (train, val) and str(p) != devkit]:
        raise ConfigError(f"{', '.join(unknown)}: a name with 'train', 'val' or 'devkit' in it is expected.")
    labels = val_labels or devkit
    if train is None:
        raise ConfigError("The training tar (a name with 'train' in it) is needed: its synsets are the classes.")
    if val is None and labels is not None:
        raise ConfigError(
            f"{labels} has the labels of the validation images, but their tar (a name with 'val') is not given."
        )
    if val is not None and labels is None:
        raise ConfigError(
            "The validation tar has no labels in it. Give ILSVRC2012_devkit_t12.tar.gz too, or --val-labels FILE, a synset a line."
        )
    with bytes_bar("imagenet") as progress:
        source = imagenet_train(train, classes, train_count, progress)
    found: dict[str, EncodedSource] = {"train": source}
    if val is not None and labels is not None:
        found["val"] = imagenet_val(val, Path(labels).expanduser(), source.classes, val_count)
    return found


def _prepare_coco(sources: list[Path], out: Path, layout: str, expect: tuple[int, int, int] | None, json: bool) -> int:
    from vernier.data.preparing.prepare import prepare_coco
    from vernier.data.unfinished import mark_unfinished

    if layout != "folders":
        raise ConfigError(f"--format {layout} has no place for boxes: COCO is unpacked as it is. Leave --format out.")
    wanted = None if expect is None else {"train": expect[1], "val": expect[2]}
    with mark_unfinished(out, "vernier data prepare coco"), bytes_bar("coco") as progress:
        counts = prepare_coco(sources, out, wanted, progress)
    print_json(counts) if json else sys.stdout.write("".join(f"{k}  {v:,} images\n" for k, v in counts.items()))
    return EXIT_DONE


def _packed_line(done: "Packed") -> str:
    line = f"{done.split}  {done.samples:,} images, {done.bytes / 2**20:,.1f} MiB"
    if done.source_bytes:
        line += f" in {done.shards} shard(s) from {done.source_bytes / 2**20:,.1f} MiB; {done.restart_indexed:,} restart-indexed, "
        line += f"{done.kept_as_they_are:,} kept as they are"
    if done.continued_after:
        line += f"; {done.continued_after:,} images were there already"
    for left_out in done.left_out:
        line += f"\n  left out: {left_out}"
    return line + "\n"


def verify(
    data: Annotated[Positional[str], arg(metavar="NAME|PATH")],
    /,
    *,
    val_share: float = 0.1,
    workers: OptionalInt = None,
    json: JsonFlag = False,
) -> int:
    """Decode every image strictly, check the hashes of shards, and look for images that are in both splits.

    Args:
        data: What --data of `vernier train` would take, or a detection set.
        val_share: A folder without train/ and val/: share of every class for validation.
        workers: Threads; left out: one a core.
    """
    from vernier.data.preparing.verify import open_splits
    from vernier.data.preparing.verify import verify as run

    _check(val_share, workers=workers)
    splits, missing = open_splits(data, val_share)
    with progress_bar("verify") as progress:
        verdict = run(splits, workers or _cores(), progress)
    for why in missing.values():
        say(f"note: {why}")
    if json:
        print_json({**asdict(verdict), "sound": verdict.sound})
    else:
        for problem in verdict.bad:
            sys.stdout.write(f"bad        {problem}\n")
        for pair in verdict.duplicates:
            sys.stdout.write(f"in both    {pair}\n")
        counts = ", ".join(f"{split} {n:,}" for split, n in verdict.images.items())
        sys.stdout.write(
            f"{counts} images; {len(verdict.bad)} bad, {len(verdict.duplicates)} in both splits, "
            f"{sum(verdict.repeated.values())} repeated within a split\n"
        )
    return EXIT_DONE if verdict.sound else EXIT_FAILED


def inspect(
    data: Annotated[Positional[str], arg(metavar="NAME|PATH")],
    /,
    *,
    sheet: Annotated[str | None, arg(metavar="FILE.png", help_behavior_hint="")] = None,
    compare_backends: bool = False,
    val_share: float = 0.1,
    json: JsonFlag = False,
) -> int:
    """Tell what is in a data set: counts, sizes, class balance; with --sheet, draw a contact sheet with boxes.

    Args:
        data: What --data of `vernier train` would take, or a detection set.
        sheet: Write a PNG with images spread over the training split.
        compare_backends: Print how far the pixels of Pillow and DALI are from ours.
        val_share: A folder without train/ and val/: share of every class for validation.
    """
    from vernier.data.preparing import verify as looking

    _check(val_share)
    splits, missing = looking.open_splits(data, val_share)
    for why in missing.values():
        say(f"note: {why}")
    facts: dict[str, Any] = {"splits": looking.describe(splits)}
    first = next(iter(splits.values()))
    if sheet:
        looking.contact_sheet(first, Path(sheet).expanduser())
        facts["sheet"] = sheet
    if compare_backends:
        facts["backends"] = looking.compare_backends(first)
    if json:
        print_json(facts)
        return EXIT_DONE
    for split, about in facts["splits"].items():
        sys.stdout.write(f"{split}\n" + "".join(f"  {k.replace('_', ' '):28s} {_shown(v)}\n" for k, v in about.items()))
    for row in facts.get("backends", []):
        sys.stdout.write("  ".join(f"{k.replace('_', ' ')} {v}" for k, v in row.items()) + "\n")
    if sheet:
        sys.stdout.write(f"contact sheet  {sheet}\n")
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
    out: Out = None,
    mirror: Annotated[str, arg(metavar="URL", help_behavior_hint="")] = "",
    json: JsonFlag = False,
) -> int:
    """Download a public data set, going on where an earlier attempt stopped, check it and unpack it.

    Args:
        name: Which set.
        out: Where to put it; left out: Vernier's cache, where --data finds it by name.
        mirror: Another address where files of the same names are.
    """
    from vernier.data.preparing.fetch import get as fetch

    with bytes_bar(name) as progress:
        path = fetch(name, Path(out).expanduser() if out else None, mirror=mirror, progress=progress)
    print_json({"path": str(path)}) if json else sys.stdout.write(f"{path}\n")
    return EXIT_DONE


COMMANDS: dict[str, Callable[..., int]] = {
    "make": make,
    "prepare": prepare,
    "verify": verify,
    "inspect": inspect,
    "get": get,
}
