"""Published weights by name: fetched from a local server, checked, cached, resumed, by one process at a time."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.http_server import Server
from vernier.data.preparing import pretrained as module
from vernier.data.preparing.pretrained import MIRROR, TORCHVISION, fetch_pretrained, is_cached, pretrained
from vernier.engine.inference.preparation import published_as
from vernier.errors import ConfigError, RunFailed
from vernier.models import names

CONTENT = bytes(range(251)) * 5000
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
    assert {p.name for p in path.parent.iterdir()} == {FILE}, "neither a lock nor a part is left"


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
    assert len(chosen.checksum.value) == 8
