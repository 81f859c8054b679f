"""Files from a local server, checked and resumed; published weights by name, cached, by one process at a time."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.http_server import Server
from vernier.addresses import VARIABLE
from vernier.data import downloads as module
from vernier.data.downloads import (
    HASHES,
    MIRROR,
    TORCHVISION,
    Checksum,
    Progress,
    download,
    fetch_pretrained,
    is_cached,
    pretrained,
)
from vernier.engine.inference.preparation import published_as
from vernier.errors import ConfigError, RunFailed
from vernier.models import names

CONTENT = bytes(range(251)) * 5000
MD5 = hashlib.md5(CONTENT).hexdigest()
FILE = f"resnet18-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"
NAME = "torchvision:resnet18"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A publisher on loopback, whose ResNet-18 has other weights: its name carries their hash."""
    running = Server()
    running.files[f"models/{FILE}"] = CONTENT
    monkeypatch.setitem(module.TORCHVISION, "resnet18", FILE)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    monkeypatch.setenv(MIRROR, f"{running.url}/models")
    yield running
    running.close()


def test_weights_are_fetched_once_and_then_taken_from_the_cache(server: Server, tmp_path: Path) -> None:
    assert not is_cached(NAME)
    path = fetch_pretrained(NAME)
    assert path == tmp_path / "weights" / FILE
    assert path.read_bytes() == CONTENT
    assert fetch_pretrained(NAME) == path
    assert server.hits == 1
    assert {p.name for p in path.parent.iterdir()} == {FILE, f"{FILE}.sha256"}, "neither a lock nor a part is left"


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.hang_up_after = 100_000
    with pytest.raises(RunFailed, match=r"100,000 bytes are kept: run the same command to resume"):
        fetch_pretrained(NAME)
    assert not is_cached(NAME)
    server.hang_up_after = None
    assert fetch_pretrained(NAME).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


def test_other_bytes_than_the_name_says_are_never_used(server: Server, tmp_path: Path) -> None:
    server.files[f"models/{FILE}"] = CONTENT[:-1] + b"!"
    with pytest.raises(RunFailed, match=r"the checksum is [0-9a-f]{8}, [0-9a-f]{8} was expected. The file was removed"):
        fetch_pretrained(NAME)
    assert not any(p.suffix in (".pth", ".part") for p in tmp_path.rglob("*"))
    server.files[f"models/{FILE}"] = CONTENT
    path = fetch_pretrained(NAME)
    path.write_bytes(b"damaged on disk")
    assert fetch_pretrained(NAME).read_bytes() == CONTENT, "a damaged file in the cache is fetched again"


def test_all_digits_of_the_hash_count_once_a_file_was_fetched(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch_pretrained(NAME)
    # Another file with the digits that the name has: found here by letting every file have them.
    monkeypatch.setattr(Checksum, "of", lambda checksum, path: checksum.value)
    path.write_bytes(b"the same eight digits")
    with pytest.raises(RunFailed, match="is not the file that was fetched first"):
        fetch_pretrained(NAME)


def test_weights_in_a_cache_that_others_can_write_are_not_used(server: Server, tmp_path: Path) -> None:
    fetch_pretrained(NAME)
    (tmp_path / "weights").chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        fetch_pretrained(NAME)


def test_several_processes_at_once_fetch_one_file(server: Server) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(fetch_pretrained(NAME))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(paths) == 4
    assert server.hits == 1


def test_without_a_network_the_message_names_the_address_and_where_to_put_the_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:9/models")
    with pytest.raises(
        RunFailed, match=rf"Cannot download http://127.0.0.1:9/models/{FILE}: .*copy it into {tmp_path}"
    ):
        fetch_pretrained(NAME)
    (tmp_path / "weights").mkdir(exist_ok=True)
    (tmp_path / "weights" / FILE).write_bytes(CONTENT)
    assert fetch_pretrained(NAME).read_bytes() == CONTENT, "a file that was put there by hand is used"


def test_a_server_without_the_file_says_so(server: Server) -> None:
    server.files.clear()
    with pytest.raises(RunFailed, match=rf"answered 404 .* put {FILE} into .*, or set {MIRROR}"):
        fetch_pretrained(NAME)


def test_the_publishers_address_is_used_unless_a_mirror_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MIRROR, raising=False)
    assert pretrained("torchvision:resnet50-v2").url == "https://download.pytorch.org/models/resnet50-11ad3fa6.pth"
    monkeypatch.setenv(MIRROR, "my-server")
    with pytest.raises(ConfigError, match=f"{MIRROR} = my-server is not an address"):
        _ = pretrained("torchvision:resnet50-v2").url


def test_whole_hashes_are_checked_and_weights_without_one_need_a_safe_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for file, whole in HASHES.items():
        assert file in TORCHVISION.values()
        assert len(whole) == 128 or (len(whole), whole[:8]) == (64, file.rpartition("-")[2].removesuffix(".pth"))
    assert pretrained("resnet50-v2").checksum.value == HASHES["resnet50-11ad3fa6.pth"]
    assert pretrained("resnext50-32x4d-v1").checksum.algorithm == "sha512"
    monkeypatch.setenv(MIRROR, "http://mirror.example.org/models")
    assert pretrained("resnet50-v2").url == "http://mirror.example.org/models/resnet50-11ad3fa6.pth"
    with pytest.raises(ConfigError, match="only eight digits of its hash are published"):
        _ = pretrained("resnet152-v2").url


def test_names_that_do_not_exist_get_similar_ones() -> None:
    with pytest.raises(ConfigError, match="two trainings of it: resnet50-v1 and resnet50-v2"):
        pretrained("torchvision:resnet50")
    with pytest.raises(ConfigError, match="resnet18"):
        pretrained("torchvision:resnet19")


@pytest.mark.parametrize("name", TORCHVISION)
def test_every_name_is_a_network_of_the_catalogue_and_known_as_published(name: str) -> None:
    chosen = pretrained(f"torchvision:{name}")
    published = published_as(Path(chosen.file))
    assert published is not None
    assert published.network == chosen.network
    assert chosen.network in names()
    assert published.by == f"torchvision IMAGENET1K_{'V2' if name.endswith('-v2') else 'V1'}"
    assert len(chosen.checksum.value) in (8, 64, 128)


@pytest.fixture
def files() -> Iterator[Server]:
    """A server of any files."""
    running = Server()
    yield running
    running.close()


def _download(url: str, path: Path, md5: str = MD5, progress: Progress | None = None) -> Path:
    return download(url, path, Checksum("md5", md5), otherwise="Get {} elsewhere.", progress=progress)


def test_a_broken_download_resumes_where_it_stopped(files: Server, tmp_path: Path) -> None:
    files.files["data.bin"], md5 = CONTENT, hashlib.md5(CONTENT).hexdigest()
    files.hang_up_after = 100_000
    with pytest.raises(RunFailed, match=r"100,000 bytes are kept: run the same command to resume"):
        _download(f"{files.url}/data.bin", tmp_path / "data.bin", md5)
    assert not (tmp_path / "data.bin").exists()
    files.hang_up_after = None
    seen: list[int] = []
    path = _download(
        f"{files.url}/data.bin",
        tmp_path / "data.bin",
        md5,
        progress=lambda _, done, total: seen.append(done),
    )
    assert path.read_bytes() == CONTENT
    assert files.ranges == [None, "bytes=100000-"]
    assert seen[-1] == len(CONTENT)
    _download(f"{files.url}/data.bin", path, md5)
    assert len(files.ranges) == 2  # nothing was requested again


def test_a_server_without_ranges_starts_again(files: Server, tmp_path: Path) -> None:
    files.files["data.bin"], files.knows_ranges = CONTENT, False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    path = _download(f"{files.url}/data.bin", tmp_path / "data.bin", hashlib.md5(CONTENT).hexdigest())
    assert files.ranges == ["bytes=1000-"]
    assert path.read_bytes() == CONTENT


def test_a_file_that_was_copied_there_must_have_the_checksum(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(CONTENT)
    url, right = "http://127.0.0.1:9/data.bin", hashlib.md5(CONTENT).hexdigest()
    with pytest.raises(RunFailed, match="does not have the checksum"):
        _download(url, tmp_path / "data.bin", "0" * 32)
    assert _download(url, tmp_path / "data.bin", right).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_removed(files: Server, tmp_path: Path) -> None:
    files.files["data.bin"] = CONTENT
    with pytest.raises(RunFailed, match="was expected"):
        _download(f"{files.url}/data.bin", tmp_path / "data.bin", "0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"Without a network, download data\.bin elsewhere"):
        _download("http://127.0.0.1:9/data.bin", tmp_path / "data.bin")


def test_a_mirror_behind_a_password_is_read_and_the_password_shown_nowhere(
    files: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.files["data.bin"], files.login = CONTENT, "me:open-sesame"
    url = f"{files.url}/data.bin"
    monkeypatch.setenv(VARIABLE, files.url.replace("://", "://me:open-sesame@"))
    assert _download(url, tmp_path / "data.bin").read_bytes() == CONTENT
    files.login = "me:changed"
    with pytest.raises(RunFailed, match="answered 401") as failed:
        _download(url, tmp_path / "again.bin")
    assert "sesame" not in str(failed.value)


def test_a_redirect_to_another_server_is_not_followed_and_gets_no_password(
    files: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Server()
    inner.files["data.bin"] = CONTENT
    files.redirects["/data.bin"] = f"{inner.url}/data.bin"
    monkeypatch.setenv(VARIABLE, files.url.replace("://", "://me:open-sesame@"))
    with pytest.raises(ConfigError, match="is not followed"):
        _download(f"{files.url}/data.bin", tmp_path / "data.bin")
    assert inner.hits == 0
    monkeypatch.setenv(VARIABLE, f"{files.url.replace('://', '://me:open-sesame@')} {inner.url}")
    assert _download(f"{files.url}/data.bin", tmp_path / "data.bin").read_bytes() == CONTENT
    assert [headers.get("Authorization") for headers in inner.headers] == [None]
    assert [bool(headers.get("Authorization")) for headers in files.headers] == [True, True]
    inner.close()
