"""Requests of `vernier data`: making, preparing, verifying, inspecting and downloading data sets."""

from typing import Literal

from vernier.requests.common import Json, Quiet
from vernier.requests.declaring import Request, argument, option, request, shared
from vernier.requests.values import FilePath, Fraction


@shared
class _SplitOff(Request):
    """Commands that read a folder that may have no splits."""

    val_split: Fraction = option(
        "10%",
        help="For a folder without train/ and val/: percentage of every class that is used for validation.",
        names=("--val-share",),
        above=0,
    )


@shared
class _InThreads(Request):
    """Commands that process every image."""

    workers: int | None = option(None, help="Number of threads.", default="one per core", low=1, group="machine")


@shared
class OfSet(Json, Quiet, _SplitOff):
    """Commands about one data set."""

    data: FilePath = argument(
        help="A data set as `vernier train --data` takes it: a name, a folder or an address.",
        metavar="NAME|PATH",
        sets="data.source",
    )
    shard_cache_gb: float | None = option(
        None,
        help="For data at an address (https://, s3://, ...): largest size of the local cache; 0: no cache.",
        default="$VERNIER_SHARD_CACHE_GB, or 50",
        metavar="GB",
        sets="machine.shard_cache_gb",
        low=0,
        high=1e6,
        unit="GB",
        group="machine",
        advanced=True,
    )


@request("data make")
class MakeData(Json):
    """Make the built-in data set: rendered shapes as JPEG files, one folder per class, with boxes.

    Examples:
        vernier data make
        vernier data make shapes --out shapes --train 2000 --val 500 --size-px 96
    """

    name: Literal["shapes"] = argument("shapes", help="Name of the set.", metavar="[shapes]")
    out: FilePath | None = option(
        None,
        help="Folder to write to.",
        default="Vernier's cache, where the name shapes is looked up",
        metavar="FOLDER",
        names=("-o", "--output"),
    )
    kind: Literal["classify", "detect"] = option(
        "classify", help="classify: one object per image; detect: several objects with boxes."
    )
    train: int = option(8000, help="Number of training images.", low=1)
    val: int = option(1000, help="Number of validation images.", low=1)
    size_px: int | None = option(
        None,
        help="Width and height of an image.",
        default="64 for classify, 160 for detect",
        low=16,
        high=1024,
        unit="pixels",
    )
    seed: int = option(0, help="Random seed; another seed renders another set.", low=0)


@request("data prepare")
class PrepareData(Json, Quiet, _SplitOff, _InThreads):
    """Write a data set in the form it is trained from.

    folder and tfrecord take one SRC, any data set that `vernier train` accepts. imagenet takes
    ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, and reads them in place. coco
    takes the zips of images and annotations, and unpacks them into one folder.

    Examples:
        vernier data prepare imagenet ILSVRC2012_*.tar ILSVRC2012_devkit_t12.tar.gz imagenet
        vernier data prepare folder photos photos-shards --format shards
        vernier data prepare coco coco coco-records --format tfrecord
    """

    kind: Literal["folder", "imagenet", "coco", "tfrecord"] = argument(help="Kind of SRC.")
    paths: tuple[FilePath, ...] = argument(
        help="Files or folders to read, and last the folder to write to.",
        metavar="SRC... OUT",
        sets="data.source",
        repeats=True,
    )
    format: Literal["folders", "shards", "raw", "tfrecord"] = option(
        "folders",
        help="folders: image files, one folder per class; shards: tar files, for large sets and slow disks; raw: "
        "decoded images, for small sets that fit into memory; tfrecord: for systems that read TensorFlow's files, also "
        "for a folder with COCO's layout. coco's zips are always unpacked without conversion.",
    )
    val_labels: FilePath | None = option(
        None,
        help="imagenet without the devkit: a file with one line per validation image in order of file name, its synset "
        "or the synset's position from 0; or the devkit's ILSVRC2012_validation_ground_truth.txt in the same folder as "
        "its meta.mat.",
        metavar="FILE",
        advanced=True,
    )
    short_side_px: int = option(
        256, help="raw: shrink images until their short side has this length.", low=1, unit="pixels"
    )
    shard_mb: int = option(512, help="shards: size of one file.", low=1, unit="MiB")
    restarts: bool = option(
        True, help="shards: rewrite JPEGs without loss so that a crop can be decoded alone.", advanced=True
    )
    files: tuple[int, int] | None = option(
        None,
        help="tfrecord: numbers of files.",
        default="1024 128 for imagenet and 256 32 for coco, as their readers expect; otherwise one per 1,000 images",
        metavar="TRAIN VAL",
        low=1,
        advanced=True,
    )
    expect: tuple[int, int, int] | None = option(
        None,
        help="imagenet and coco: numbers of classes, training and validation images (coco ignores CLASSES).",
        default="the official ones",
        metavar="CLASSES TRAIN VAL",
        low=0,
        advanced=True,
    )


@request("data verify")
class VerifyData(OfSet, _InThreads):
    """Decode every image strictly, check the hashes of shards, and find images that are in more than one split.

    The exit code is 1 if an image or a shard is bad, or if an image is in more than one split.

    Examples:
        vernier data verify photos
        vernier data verify photos --json
        vernier data verify https://example.org/photos-shards --shard-cache-gb 5
    """


@request("data inspect")
class InspectData(OfSet):
    """Show what is in a data set: counts, image sizes, class balance.

    Examples:
        vernier data inspect photos
        vernier data inspect photos --sheet photos.png
    """

    sheet: FilePath | None = option(
        None,
        help="Also write a PNG with 40 images of the training split, with their classes and boxes.",
        metavar="FILE.png",
    )


@request("data get")
class GetData(Json, Quiet):
    """Download a public data set, check it and unpack it. An interrupted download resumes.

    Examples:
        vernier data get cifar10
        vernier data get imagenette --out imagenette
    """

    name: Literal["cifar10", "fashion-mnist", "imagenette", "coco"] = argument(help="Name of the set.")
    out: FilePath | None = option(
        None,
        help="Folder to write to.",
        default="Vernier's cache, where the name is looked up",
        metavar="FOLDER",
        names=("-o", "--output"),
    )
    mirror: str = option(
        "", help="Download from this address instead; it must have files of the same names.", metavar="URL"
    )
