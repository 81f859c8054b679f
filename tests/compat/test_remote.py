"""Shards at an address, served by a local server that honours ranges."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")

from tests.conftest import Done, only_run
from tests.data.http_server import Server
from vernier.addresses import VARIABLE
from vernier.compat import remote as remote_shards
from vernier.compat.preparing.packing import pack_shards
from vernier.compat.remote import LIMIT_VARIABLE, cache_limit_bytes, open_remote, refuse_link_local
from vernier.config import Config, override
from vernier.data.loading.order import TrainOrder
from vernier.data.sources import EncodedSource, open_split
from vernier.data.sources.views import _decoded_bytes
from vernier.errors import ConfigError, RunFailed


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_shards, "RETRY_WAITS_S", (0.01, 0.02, 0.03))


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


def test_a_download_that_ends_while_the_cache_is_counted_is_not_missed(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = served
    cache, limit = tmp_path / "cache", 150_000
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=limit)
    remote.read(0)
    (first,) = cache.glob("*/*.tar")
    part, done = first.with_name(".other.tar.part-1"), first.with_name("other.tar")
    part.write_bytes(first.read_bytes())
    list_files = remote_shards._sizes_and_times

    def list_then_rename(home: Path, pattern: str) -> dict[Path, tuple[int, int]]:
        files = list_files(home, pattern)
        if part.exists():
            part.replace(done)
        return files

    monkeypatch.setattr(remote_shards, "_sizes_and_times", list_then_rename)
    remote.read(159)
    assert sum(p.stat().st_size for p in cache.glob("*/*.tar")) <= limit


def test_a_shard_is_read_by_ranges_while_other_downloads_fill_the_cache(
    served: tuple[Server, Path], tmp_path: Path
) -> None:
    server, folder = served
    local, cache, limit = open_split(str(folder), "train"), tmp_path / "cache", 150_000
    assert isinstance(local, EncodedSource)
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=limit)
    remote.all_labels()
    (folder_of_set,) = cache.iterdir()
    part = folder_of_set / ".other.tar.part-1"
    part.write_bytes(b"x" * (limit - 1000))
    assert remote.read(0) == local.read(0)
    assert not list(cache.glob("*/*.tar")), "the other download and this shard do not fit together"
    part.unlink()
    assert remote.read(0) == local.read(0)
    assert len(list(cache.glob("*/*.tar"))) == 1


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
    assert _decoded_bytes(remote) == _decoded_bytes(local)
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


def test_a_store_that_fails_slows_and_garbles_is_asked_again(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    monkeypatch.setattr(remote_shards, "STALL_S", 1.0)
    monkeypatch.setattr(remote_shards, "RETRY_WAITS_S", (0.01,) * 9)  # a busy machine may be silent, too
    server.troubles = {
        "set/train-000000.tar": ["error", "garbage", "silence"],
        "set/train-000001.tar": ["garbage"],
        "set/train-000002.tar": ["down", "down", "down", "down"],
    }
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    local = open_split(str(folder), "train")
    assert isinstance(local, EncodedSource)
    assert [remote.read(i) for i in range(160)] == [local.read(i) for i in range(160)]
    assert server.downloads["set/train-000000.tar"] >= 4
    assert server.downloads["set/train-000001.tar"] >= 2


def test_a_store_that_goes_on_failing_is_named_with_the_shard(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    server.troubles = {"set/train-000000.tar": ["error"] * 9}
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    message = rf"^Cannot read {server.url}/set/train-000000.tar: it answered 503 .* \(tried 4 times in \d+ s\)\.$"
    with pytest.raises(RunFailed, match=message):
        remote.read(0)
    server.troubles = {"set/train-000000.tar": ["garbage"] * 4}
    with pytest.raises(RunFailed, match=r"train-000000.tar: the content does not match its hash.*tried 4 times"):
        remote.read(0)
    assert not [p.name for p in (tmp_path / "cache").rglob("*") if ".part" in p.name or p.suffix == ".tar"]


def test_a_store_that_is_down_and_a_missing_shard_are_told_apart(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    remote.all_labels()
    server.troubles = {"set/train-000000.tar": ["down"] * 99}
    with pytest.raises(RunFailed, match=r"train-000000.tar: it answered 503 .*tried 4 times"):
        remote.read(0)
    del server.files["set/train-000000.tar"]
    with pytest.raises(RunFailed, match=r"train-000000.tar: it answered 404 [^(]*$"):
        remote.read(0)


def test_content_without_end_does_not_fill_the_disk(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    name = "set/train-000000.tar"
    server.files[name] *= 300
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    with pytest.raises(RunFailed, match="does not match its hash"):
        remote.read(0)


@pytest.mark.parametrize("limit", [10**9, 150_000])
def test_processes_of_a_host_read_each_sample_once_and_share_the_downloads(
    served: tuple[Server, Path], tmp_path: Path, limit: int
) -> None:
    """Four ranks, each with its own source, and one cache: locks of files do not know which process has them."""
    server, folder = served
    local = open_split(str(folder), "train")
    assert isinstance(local, EncodedSource)
    ranks = [open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=limit) for _ in range(4)]

    def read_epoch(rank: int) -> list[tuple[int, bytes]]:
        order = TrainOrder(samples=160, seed=5, global_batch=16, rank=rank, world=4)
        own = [int(i) for step in range(order.steps_per_epoch) for i in order.indices(0, step, 0)]
        return [(i, ranks[rank].read(i)) for i in own]

    with ThreadPoolExecutor(4) as pool:
        samples = [sample for part in pool.map(read_epoch, range(4)) for sample in part]
    assert sorted(samples) == [(i, local.read(i)) for i in range(160)]
    assert sum(p.stat().st_size for p in (tmp_path / "cache").glob("*/*.tar")) <= limit
    if limit == 10**9:
        assert {server.downloads[f"set/{shard.name}"] for shard in ranks[0].shards} == {1}
    assert not [p.name for p in (tmp_path / "cache").rglob(".*")], "no locks and no parts are left"


def test_what_a_killed_process_left_is_removed(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    cache = tmp_path / "cache"
    remote = open_remote(f"{server.url}/set", "train", cache=cache, limit_bytes=10**9)
    remote.all_labels()
    (folder,) = cache.iterdir()
    same, old, new = (folder / f".train-00000{n}.tar.part-{n}" for n in range(3))
    for path in (same, old, new):
        path.write_bytes(b"x" * 1000)
    os.utime(old, (1, 1))
    remote.read(0)
    assert [p.exists() for p in (same, old, new)] == [False, False, True], "another process may be writing the last"


def test_a_cache_folder_that_cannot_be_written_is_named(served: tuple[Server, Path], tmp_path: Path) -> None:
    server, _ = served
    (tmp_path / "cache").write_text("a file")
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=10**9)
    with pytest.raises(RunFailed, match=rf"for the cache of shards, {tmp_path}/cache. .*{LIMIT_VARIABLE}=0"):
        remote.read(0)


def test_training_from_an_address_is_training_from_the_folder(
    vernier_here: Callable[..., Done],
    served: tuple[Server, Path],
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With two-level order and a cache that holds a few of the shards."""
    server, folder = served
    monkeypatch.setenv(LIMIT_VARIABLE, "0")  # the setting comes first
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    settings = ["--set", "data.shuffle_shards=2", "--max-steps", "3", "--train-only"]
    settings += ["--set", "machine.shard_cache_gb=0.00015"]
    losses = []
    for data in (str(folder), f"{server.url}/set"):
        out = tmp_path / f"runs{len(losses)}"
        done = vernier_here("train", *tiny, "--data", data, *settings, "--out", str(out))
        assert done.code == 0, done.err
        events = map(json.loads, (only_run(out) / "events.jsonl").read_text().splitlines())
        steps = [event for event in events if event["kind"] == "step"]
        assert sum(len(event["step_s"]) for event in steps) == 3
        losses.append(sum(event["loss"] * len(event["step_s"]) for event in steps))  # a window ends by the clock
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert 0 < sum(p.stat().st_size for p in (tmp_path / "home").rglob("*.tar")) <= 150_000


@pytest.mark.parametrize("gigabytes", ["0", "0.00015"])
def test_verifying_an_address_keeps_to_the_size_of_the_cache_that_was_given(
    vernier_here: Callable[..., Done],
    served: tuple[Server, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gigabytes: str,
) -> None:
    server, _ = served
    monkeypatch.setenv(LIMIT_VARIABLE, "1")  # the flag comes first
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    done = vernier_here("data", "verify", f"{server.url}/set", "--shard-cache-gb", gigabytes, "--json")
    assert done.code == 0, done.err
    assert done.json()["images"]["train"] == 160
    size = sum(p.stat().st_size for p in (tmp_path / "home").rglob("*.tar"))
    assert (size > 0) == (gigabytes != "0")
    assert size <= 150_000


@pytest.mark.parametrize("command", [["data", "verify"], ["data", "inspect"]])
def test_the_size_of_a_cache_that_does_not_fit_is_refused(
    vernier_here: Callable[..., Done], command: list[str]
) -> None:
    done = vernier_here(*command, "photos", "--shard-cache-gb", "5")
    assert (done.code, "photos is not one" in done.err) == (2, True), done.err
    done = vernier_here(*command, "https://127.0.0.1:1/set", "--shard-cache-gb=-1")
    assert (done.code, "--shard-cache-gb -1" in done.err, "0 or more" in done.err) == (2, True, True), done.err


def test_a_cache_of_negative_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"machine.shard_cache_gb"):
        override(Config(), "machine.shard_cache_gb", -1)


def test_an_address_without_shards_says_what_would_work(served: tuple[Server, Path]) -> None:
    server, _ = served
    with pytest.raises(ConfigError, match="Cannot read") as error:
        open_split(f"{server.url}/nothing", "train")
    ((name, words),) = error.value.works
    assert (name, words["format"]) == ("data.prepare", "shards")
    with pytest.raises(ConfigError, match="Cannot read"):
        open_split("nosuch://x/y", "train")


def test_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "2.5")
    assert cache_limit_bytes() == 2_500_000_000
    assert cache_limit_bytes(0.5) == 500_000_000
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(ConfigError, match="GB"):
        cache_limit_bytes()


# ------------------------------------------------------------------------------------------- credentials, permission

PASSWORD = "hunter2-and-more"


def test_user_and_password_open_an_address_and_appear_in_no_message(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    server.login = f"me:{PASSWORD}"
    address = f"{server.url}/set"
    with pytest.raises(ConfigError, match=r"answered 401 .*VERNIER_ADDRESSES, or in ~/.netrc"):
        open_remote(address, "train", cache=tmp_path / "cache")
    monkeypatch.setenv(VARIABLE, address.replace("://", f"://me:{PASSWORD}@"))
    remote = open_remote(address, "train", cache=tmp_path / "cache", limit_bytes=10**9)
    assert np.array_equal(remote.image(5), open_split(str(folder), "train").image(5))
    server.files = {name: content for name, content in server.files.items() if not name.endswith(".tar")}
    with pytest.raises(RunFailed, match=r"Cannot read http://127.0.0.1") as failed:
        remote.image(159)
    assert PASSWORD not in str(failed.value)
    assert PASSWORD not in repr(remote.__dict__)


def test_a_netrc_file_gives_user_and_password(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = served
    server.login = f"me:{PASSWORD}"
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {PASSWORD}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert len(open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")) == 160
    server.login = "me:typed-instead"
    monkeypatch.setenv(VARIABLE, server.url.replace("://", "://me:typed-instead@"))
    assert len(open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")) == 160


def test_a_token_in_the_query_goes_with_every_request(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    server.query = f"sv=1&sig={PASSWORD}"
    monkeypatch.setenv(VARIABLE, f"{server.url}/set?sv=1&sig={PASSWORD}")
    for limit in (10**9, 0):
        remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache", limit_bytes=limit)
        assert np.array_equal(remote.image(7), open_split(str(folder), "train").image(7))
    assert not [p for p in (tmp_path / "cache").rglob("*") if PASSWORD in p.name]
    server.query = "expired"
    with pytest.raises(ConfigError, match="answered 401") as refused:
        open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")
    assert PASSWORD not in str(refused.value)


def test_no_request_is_made_for_an_address_that_nobody_typed(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = served
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match="which you have not typed"):
        open_split(f"{server.url}/set", "train")
    with pytest.raises(ConfigError, match="which you have not typed"):
        open_split(f"file://{tmp_path}/set", "train")
    assert server.hits == 0
    monkeypatch.setenv(VARIABLE, f"{server.url}/set")
    open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")
    monkeypatch.setenv(VARIABLE, "")
    assert len(open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")) == 160, "remembered"


def test_a_redirect_to_another_server_is_not_followed(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    inner = Server()  # what only this machine can reach
    inner.files = dict(server.files)
    monkeypatch.setenv(VARIABLE, server.url)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    server.redirects = {f"/moved/{p.name}": f"{inner.url}/set/{p.name}" for p in folder.iterdir()}
    server.redirects |= {f"/here/{p.name}": f"/set/{p.name}" for p in folder.iterdir()}
    for header in ("Location", "URI"):  # the old header leads on as well
        server.redirect_header = header
        with pytest.raises(ConfigError, match="another server, and is not followed"):
            open_remote(f"{server.url}/moved", "train", cache=tmp_path / "cache")
    assert inner.hits == 0
    assert len(open_remote(f"{server.url}/here", "train", cache=tmp_path / "cache")) == 160
    monkeypatch.setenv(VARIABLE, f"{server.url} {inner.url}/set")
    assert len(open_remote(f"{server.url}/moved", "train", cache=tmp_path / "cache")) == 160
    # A shard that moves later, in the middle of a training.
    monkeypatch.setenv(VARIABLE, server.url)
    remote = open_remote(f"{server.url}/set", "train", cache=tmp_path / "other", limit_bytes=0)
    hits, name = inner.hits, remote.shards[0].name
    remote.all_labels()
    server.redirects = {f"/set/{name}": f"{inner.url}/set/{name}"}
    with pytest.raises(RunFailed, match="another server, and is not followed"):
        remote.image(0)
    assert inner.hits == hits
    inner.close()


def test_a_name_for_a_link_local_number_is_not_read() -> None:
    for number in ("169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0"):
        with pytest.raises(ConfigError, match="type the number"):
            refuse_link_local("data.example.org", ["93.184.216.34", number])
    refuse_link_local("data.example.org", ["93.184.216.34", "10.0.0.1", "127.0.0.1"])


def test_a_certificate_that_nobody_vouches_for_is_refused(
    served: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS is verified; an authority of one's own is named in SSL_CERT_FILE."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed: no certificate can be made")
    server, _ = served
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", *kind, *files, *subject], check=True, capture_output=True)
    server.use_tls(key, certificate)
    address = f"{server.url}/set"
    with pytest.raises(ConfigError, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
        open_remote(address, "train", cache=tmp_path / "cache")
    assert server.hits == 0
    code = f"from vernier.compat.remote import open_remote as o; print(len(o({address!r}, 'train')))"
    variables = {**os.environ, "SSL_CERT_FILE": str(certificate), "VERNIER_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert done.stdout == "160\n", done.stderr


def test_an_address_that_refuses_the_connection_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"ftp://me:{PASSWORD}@127.0.0.1:9 http://127.0.0.1:9")
    for address in ("ftp://me@127.0.0.1:9/set", "http://127.0.0.1:9/set"):
        with pytest.raises(
            ConfigError, match=f"Cannot read {address}.*refused|Cannot read {address}.*connect"
        ) as failed:
            open_remote(address, "train")
        assert PASSWORD not in str(failed.value)


def test_a_table_that_does_not_match_its_hash_is_refused_and_fetched_again(
    served: tuple[Server, Path], tmp_path: Path
) -> None:
    server, folder = served
    table = min(folder.glob("train-*.tar.table"))
    content = table.read_bytes()
    server.files[f"set/{table.name}"] = content[:-1] + bytes([content[-1] ^ 1])
    source = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")
    with pytest.raises(RunFailed, match="the content does not match its hash"):
        source.table(0)
    server.files[f"set/{table.name}"] = content
    assert source.verify_shard(0) == ""
    cached = next((tmp_path / "cache").rglob(table.name))
    cached.write_bytes(content[: len(content) // 2])
    source = open_remote(f"{server.url}/set", "train", cache=tmp_path / "cache")
    with pytest.raises(RunFailed, match=r"cannot be read: .* is truncated"):
        source.table(0)
    assert source.verify_shard(0) == ""
