"""What the actions of `data` take."""

import pytest

from vernier.cli.parser import parse
from vernier.compat.preparing.requests import GetData, InspectData, MakeData, PrepareData, VerifyData
from vernier.errors import ConfigError
from vernier.requests.declaring import Request


def test_the_last_path_is_where_to_write() -> None:
    words = "imagenet a.tar b.tar out --format shards --expect 10 20 30 --val-share 5%"
    request, _ = parse(PrepareData, words.split(), "data prepare")
    assert (request.kind, request.paths) == ("imagenet", ("a.tar", "b.tar", "out"))
    assert (request.expect, request.val_split) == ((10, 20, 30), "5%")
    assert PrepareData.from_json(request.to_json()) == request


def test_a_set_is_made_with_defaults_alone() -> None:
    request, _ = parse(MakeData, [], "data make")
    assert (request.name, request.train, request.val, request.size_px, request.out) == (
        "shapes",
        8000,
        1000,
        None,
        None,
    )


def test_paths_of_the_home_folder_are_expanded() -> None:
    assert "~" not in InspectData(data="~/photos").data
    assert parse(VerifyData, ["https://example.org/x"], "data verify")[0].data == "https://example.org/x"


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (MakeData, {"train": 0}),
        (MakeData, {"val": -1}),
        (MakeData, {"size_px": 2000}),
        (MakeData, {"seed": -1}),
        (MakeData, {"kind": "segment"}),
        (PrepareData, {"short_side_px": 0}),
        (PrepareData, {"shard_mb": 0}),
        (PrepareData, {"files": (1, 0)}),
        (PrepareData, {"files": (1,)}),
        (PrepareData, {"expect": (1, 2)}),
        (PrepareData, {"format": "zip"}),
        (PrepareData, {"workers": 0}),
        (VerifyData, {"val_split": "0%"}),
        (VerifyData, {"shard_cache_gb": -1.0}),
        (InspectData, {"shard_cache_gb": float("nan")}),
        (GetData, {"name": "imagenet"}),
    ],
)
def test_what_is_out_of_range_or_unknown_is_refused(cls: type[Request], values: dict[str, object]) -> None:
    needed: dict[type[Request], dict[str, object]] = {
        PrepareData: {"kind": "folder", "paths": ("a", "b")},
        VerifyData: {"data": "photos"},
        InspectData: {"data": "photos"},
    }
    with pytest.raises(ConfigError) as refused:
        cls(**{**needed.get(cls, {}), **values})
    assert set(refused.value.given) == set(values)
