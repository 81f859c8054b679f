"""Sets from a local server, and archives that should not be unpacked."""

import contextlib
import gzip
import hashlib
import io
import multiprocessing
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.archives import tar_bytes
from tests.data.http_server import Server
from vernier.compat.preparing import fetch
from vernier.data.sources import open_split
from vernier.errors import ConfigError, RunFailed

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def test_a_set_that_was_not_unpacked_to_its_end_is_refused_until_it_is(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(
        tar_bytes(
            [(f"imagenette2-320/{s}/n01440764/{i}.JPEG", CONTENT[:9000]) for s in ("train", "val") for i in (1, 2)]
        )
    )
    server.files["imagenette2-320.tgz"] = packed
    broken = packed[: len(packed) * 3 // 4]
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    for content in (broken, packed):
        file = fetch.File("http://x/imagenette2-320.tgz", hashlib.md5(content).hexdigest(), unpack=True)
        monkeypatch.setitem(fetch.SETS, "imagenette", (file,))
        server.files["imagenette2-320.tgz"] = content
        if content is broken:
            with pytest.raises(RunFailed, match="was not unpacked"):
                fetch.get("imagenette", mirror=server.url)
            assert list((tmp_path / "data/imagenette/imagenette2-320").rglob("*.JPEG"))
            with pytest.raises(ConfigError, match="vernier data get imagenette"):
                open_split("imagenette", "train")
    fetch.get("imagenette", mirror=server.url)
    assert len(open_split("imagenette", "train")) == len(open_split("imagenette", "val")) == 2


def _get(url: str, home: str) -> None:
    fetch.get("cifar10", Path(home) / "data" / "cifar10", mirror=url)


def test_two_at_once_fetch_it_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two ended with FileNotFoundError for the part that the other had renamed."""
    packed = gzip.compress(tar_bytes([("cifar-10-batches-bin/test_batch.bin", CONTENT)]))
    server.files["cifar-10-binary.tar.gz"] = packed
    file = fetch.File("http://x/cifar-10-binary.tar.gz", hashlib.md5(packed).hexdigest(), unpack=True)
    monkeypatch.setitem(fetch.SETS, "cifar10", (file,))
    start = multiprocessing.get_context("fork").Process
    processes = [start(target=_get, args=(server.url, str(tmp_path))) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    assert server.hits == 1
    assert (tmp_path / "data/cifar10/cifar-10-batches-bin/test_batch.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.35])
def test_a_killed_fetch_is_completed_by_the_same_call(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    members = [(f"cifar-10-batches-bin/data_batch_{i}.bin", CONTENT) for i in range(1, 40)]
    packed = gzip.compress(tar_bytes(members), compresslevel=1)
    server.files["cifar-10-binary.tar.gz"] = packed
    file = fetch.File("http://x/cifar-10-binary.tar.gz", hashlib.md5(packed).hexdigest(), unpack=True)
    monkeypatch.setitem(fetch.SETS, "cifar10", (file,))
    process = multiprocessing.get_context("fork").Process(target=_get, args=(server.url, str(tmp_path)))
    process.start()
    process.join(after_s)
    process.kill()
    process.join()
    _get(server.url, str(tmp_path))
    folder = tmp_path / "data/cifar10"
    unpacked = {path.name: path.read_bytes() for path in (folder / "cifar-10-batches-bin").iterdir()}
    assert unpacked == {name.rpartition("/")[2]: content for name, content in members}
    assert {path.name for path in folder.iterdir()} == {"cifar-10-batches-bin", ".cifar-10-binary.tar.gz.done"}


def test_an_empty_mark_as_a_power_cut_leaves_it_is_none(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["set.bin"] = CONTENT
    file = fetch.File("http://x/set.bin", hashlib.md5(CONTENT).hexdigest())
    monkeypatch.setitem(fetch.SETS, "cifar10", (file,))
    (tmp_path / ".set.bin.done").touch()
    fetch.get("cifar10", tmp_path, mirror=server.url)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert (tmp_path / ".set.bin.done").read_text().strip() == file.md5


def test_an_archive_with_other_content_than_its_publisher_states_is_not_unpacked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror could otherwise send a decompression bomb."""
    server.files["cifar-10-binary.tar.gz"] = gzip.compress(tar_bytes([("bomb.bin", bytes(50_000_000))]))
    file = fetch.File("http://x/cifar-10-binary.tar.gz", "0" * 32, unpack=True)
    monkeypatch.setitem(fetch.SETS, "cifar10", (file,))
    with pytest.raises(RunFailed, match="the checksum is"):
        fetch.get("cifar10", tmp_path / "set", mirror=server.url)
    assert not any(path.is_file() for path in (tmp_path / "set").rglob("*"))


def test_a_missing_file_names_the_mirror(server: Server, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"404.* address that has cifar-10-binary\.tar\.gz") as error:
        fetch.get("cifar10", tmp_path, mirror=server.url)
    assert error.value.works == [("mirror", None)]
    with pytest.raises(ConfigError, match="is not an address") as refused:
        fetch.get("cifar10", tmp_path, mirror="/files")
    assert refused.value.given == {"mirror": "/files"}


def test_cifar10_is_fetched_unpacked_and_found(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(tar_bytes([("cifar-10-batches-bin/test_batch.bin", bytes(3073))]))
    server.files["cifar-10-binary.tar.gz"] = packed
    file = fetch.File("http://x/cifar-10-binary.tar.gz", hashlib.md5(packed).hexdigest(), unpack=True)
    monkeypatch.setitem(fetch.SETS, "cifar10", (file,))
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    fetch.get("cifar10", mirror=server.url)
    fetch.get("cifar10", mirror=server.url)
    assert len(server.ranges) == 1
    assert len(open_split("cifar10", "val")) == 1


@pytest.mark.parametrize("name", ["../escaped.txt", "/tmp/vernier-escaped.txt", "a/../../escaped.txt"])
def test_nothing_is_unpacked_outside_the_folder(tmp_path: Path, name: str) -> None:
    bad_zip, bad_tar = tmp_path / "bad.zip", tmp_path / "bad.tar"
    with zipfile.ZipFile(bad_zip, "w") as bundle:
        bundle.writestr(name, "x")
    with tarfile.open(bad_tar, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    for archive in (bad_zip, bad_tar):
        with contextlib.suppress(RunFailed):
            fetch.unpack(archive, tmp_path / "out" / "deep")
        assert not (tmp_path / "out" / "escaped.txt").exists()
        assert not (tmp_path / "escaped.txt").exists()
        assert not Path("/tmp/vernier-escaped.txt").exists()


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "link.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        bundle.writestr(info, "/etc")
    with pytest.raises(RunFailed, match="outside"):
        fetch.unpack(archive, tmp_path / "out")


def test_an_unknown_set_is_named_with_similar_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean cifar10"):
        fetch.get("cifar", tmp_path)
