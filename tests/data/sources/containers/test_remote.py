"""Shards at an address, served by a local server that honours ranges."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")

from tests.conftest import Done, only_run
from tests.data.http_server import Server
from vernier.data.loading.cache import decoded_bytes
from vernier.data.preparing.shards import pack_shards
from vernier.data.sources import EncodedSource, open_split
from vernier.data.sources.containers.remote import LIMIT_VARIABLE, cache_limit_bytes, open_remote
from vernier.errors import ConfigError, RunFailed


@pytest.fixture
def served(shapes: Path, tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    source = open_split(str(shapes), "train")
    assert isinstance(source, EncodedSource)
    pack_shards(source, tmp_path / "set", "train", shard_bytes=60_000, restarts=False, workers=1)
    server = Server()
    server.files = {f"set/{p.name}": p.read_bytes() for p in (tmp_path / "set").iterdir()}
    yield server, tmp_path / "set"
    server.close()


def test_images_are_those_of_the_local_shards(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, folder = served
    local = open_split(str(folder), "train")
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    assert remote.fingerprint() == local.fingerprint()
    assert remote.all_labels().tolist() == local.all_labels().tolist()
    for i in range(0, 160, 7):
        assert np.array_equal(remote.image(i), local.image(i))
    requests = len(server.ranges)
    again = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    assert np.array_equal(again.image(9), local.image(9))
    assert len(server.ranges) == requests + 1, "the manifest alone; the rest is in the cache"


def test_the_cache_stays_below_its_limit(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, folder = served
    local, cache, limit = open_split(str(folder), "train"), tmp_path / "cache", 150_000
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=limit)
    assert sum(s.bytes for s in remote.shards) > 2 * limit
    for i in [*range(0, 160, 5), *range(0, 160, 11)]:
        assert np.array_equal(remote.image(i), local.image(i))
        assert sum(p.stat().st_size for p in cache.glob("*/*.tar")) <= limit


def test_two_threads_read_the_right_bytes_and_stay_below_the_limit_together(
    served: tuple[Server, Path], tmp_path: Path
) -> None:
    server, folder = served
    local, cache, limit = open_split(str(folder), "train"), tmp_path / "cache", 150_000
    assert isinstance(local, EncodedSource)
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=limit)
    samples = [i for start in range(20) for i in range(start, 160, 20)]
    with ThreadPoolExecutor(2) as pool:
        contents = list(pool.map(remote.read, samples))
    assert contents == [local.read(i) for i in samples]
    assert sum(p.stat().st_size for p in cache.glob("*/*.tar")) <= limit


def test_a_lower_limit_also_holds_for_shards_cached_before_and_for_every_address(
    served: tuple[Server, Path], tmp_path: Path
) -> None:
    server, _ = served
    server.files |= {name.replace("set/", "other/"): content for name, content in server.files.items()}
    cache = tmp_path / "cache"

    def cached_bytes() -> int:
        return sum(p.stat().st_size for p in cache.glob("*/*.tar"))

    for name in ("set", "other"):
        remote = open_remote(f"{server.url}/{name}", "train", cache=cache, limit_bytes=10**9)
        for i in range(160):
            remote.read(i)
    whole = sum(s.bytes for s in remote.shards)
    assert cached_bytes() == 2 * whole
    open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=0)
    assert cached_bytes() == 2 * whole, "a cache that is off is not emptied"
    last = remote.shards[-1].name
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=whole)
    assert 0 < cached_bytes() <= whole
    assert len(list(cache.glob(f"*/{last}"))) == 1, "the address used last stays"
    remote.read(0)
    assert cached_bytes() <= whole


def test_whether_a_set_fits_into_memory_is_known_without_downloading_it(
    served: tuple[Server, Path], shapes: Path, tmp_path: Path
) -> None:
    server, _ = served
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    local = open_split(str(shapes), "train")
    assert isinstance(local, EncodedSource)
    assert decoded_bytes(remote) == decoded_bytes(local)
    assert not list((tmp_path / "cache").rglob("*.tar"))


def test_a_failed_transfer_leaves_nothing(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    remote.all_labels()
    del server.files["set/train-000000.tar"]
    with pytest.raises(RunFailed, match="Cannot read"):
        remote.read(0)
    assert not [p.name for p in (tmp_path / "cache").rglob("*") if ".part" in p.name or p.suffix == ".tar"]


def test_shards_above_the_limit_are_read_by_ranges(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, folder = served
    local = open_split(str(folder), "train")
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=0)
    assert np.array_equal(remote.image(5), local.image(5))
    assert not list((tmp_path / "cache").rglob("*.tar"))


def test_damage_on_the_way_is_noticed(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    name = "set/train-000000.tar"
    server.files[name] = server.files[name][:5000] + b"!" + server.files[name][5001:]
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    with pytest.raises(RunFailed, match="does not match its hash"):
        remote.image(0)


def test_training_from_an_address_is_training_from_the_folder(
    vernier_here: Callable[..., Done],
    served: tuple[Server, Path],
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With two-level order and a cache that holds a few of the shards."""
    server, folder = served
    monkeypatch.setenv(LIMIT_VARIABLE, "0.00015")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    settings = ["--set", "data.shuffle_shards=2", "--max-steps", "3", "--train-only"]
    losses = []
    for data in (str(folder), f"{server.url}/set"):
        out = tmp_path / f"runs{len(losses)}"
        done = vernier_here("train", *tiny, "--data", data, *settings, "--out", str(out))
        assert done.code == 0, done.err
        events = map(json.loads, (only_run(out) / "events.jsonl").read_text().splitlines())
        losses.append([e["loss"] for e in events if e["kind"] == "step"])
    assert losses[0]
    assert losses[0] == losses[1]
    assert 0 < sum(p.stat().st_size for p in (tmp_path / "home").rglob("*.tar")) <= 150_000


def test_an_address_without_shards_says_what_would_work(served: tuple[Server, Path]) -> None:
    server, _ = served
    with pytest.raises(ConfigError, match="--format shards"):
        open_split(f"{server.url}/nothing", "train")
    with pytest.raises(ConfigError, match="Cannot read"):
        open_split("nosuch://x/y", "train")


def test_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "2.5")
    assert cache_limit_bytes() == 2_500_000_000
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(ConfigError, match="GB"):
        cache_limit_bytes()
