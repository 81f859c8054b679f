"""Downloading from a local server, and unpacking what should not be unpacked."""

import contextlib
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.archives import tar_bytes
from tests.data.http_server import Server
from vernier.addresses import VARIABLE
from vernier.data.preparing import fetch
from vernier.data.sources import open_split
from vernier.errors import ConfigError, RunFailed

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def test_a_broken_download_resumes_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"], md5 = CONTENT, hashlib.md5(CONTENT).hexdigest()
    server.hang_up_after = 100_000
    with pytest.raises(RunFailed, match=r"100,000 bytes are kept: run the same command to resume"):
        fetch.download(f"{server.url}/data.bin", tmp_path / "data.bin", fetch.Checksum("md5", md5))
    assert not (tmp_path / "data.bin").exists()
    server.hang_up_after = None
    seen: list[int] = []
    path = fetch.download(
        f"{server.url}/data.bin",
        tmp_path / "data.bin",
        fetch.Checksum("md5", md5),
        progress=lambda _, done, total: seen.append(done),
    )
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]
    assert seen[-1] == len(CONTENT)
    fetch.download(f"{server.url}/data.bin", path, fetch.Checksum("md5", md5))
    assert len(server.ranges) == 2  # nothing was requested again


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"], server.knows_ranges = CONTENT, False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    path = fetch.download(
        f"{server.url}/data.bin", tmp_path / "data.bin", fetch.Checksum("md5", hashlib.md5(CONTENT).hexdigest())
    )
    assert server.ranges == ["bytes=1000-"]
    assert path.read_bytes() == CONTENT


def test_a_file_that_was_copied_there_must_have_the_checksum(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(CONTENT)
    url, right = "http://127.0.0.1:9/data.bin", hashlib.md5(CONTENT).hexdigest()
    with pytest.raises(RunFailed, match="does not have the checksum"):
        fetch.download(url, tmp_path / "data.bin", fetch.Checksum("md5", "0" * 32))
    assert fetch.download(url, tmp_path / "data.bin", fetch.Checksum("md5", right)).read_bytes() == CONTENT


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


def test_a_wrong_checksum_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"] = CONTENT
    with pytest.raises(RunFailed, match="was expected"):
        fetch.download(f"{server.url}/data.bin", tmp_path / "data.bin", fetch.Checksum("md5", "0" * 32))
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"Without a network, download data\.bin elsewhere"):
        fetch.download("http://127.0.0.1:9/data.bin", tmp_path / "data.bin")
    with pytest.raises(ConfigError, match="Did you mean cifar10"):
        fetch.get("cifar", tmp_path)


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


def test_a_mirror_behind_a_password_is_read_and_the_password_shown_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["data.bin"], server.login = CONTENT, "me:open-sesame"
    url = f"{server.url}/data.bin"
    monkeypatch.setenv(VARIABLE, server.url.replace("://", "://me:open-sesame@"))
    assert fetch.download(url, tmp_path / "data.bin").read_bytes() == CONTENT
    server.login = "me:changed"
    with pytest.raises(RunFailed, match="answered 401") as failed:
        fetch.download(url, tmp_path / "again.bin")
    assert "sesame" not in str(failed.value)


def test_a_redirect_to_another_server_is_not_followed_and_gets_no_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Server()
    inner.files["data.bin"] = CONTENT
    server.redirects["/data.bin"] = f"{inner.url}/data.bin"
    monkeypatch.setenv(VARIABLE, server.url.replace("://", "://me:open-sesame@"))
    with pytest.raises(ConfigError, match="is not followed"):
        fetch.download(f"{server.url}/data.bin", tmp_path / "data.bin")
    assert inner.hits == 0
    monkeypatch.setenv(VARIABLE, f"{server.url.replace('://', '://me:open-sesame@')} {inner.url}")
    assert fetch.download(f"{server.url}/data.bin", tmp_path / "data.bin").read_bytes() == CONTENT
    assert [headers.get("Authorization") for headers in inner.headers] == [None]
    assert [bool(headers.get("Authorization")) for headers in server.headers] == [True, True]
    inner.close()
