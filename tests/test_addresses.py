"""Which addresses may be read, and that their credentials stay where they are needed."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vernier.addresses import (
    VARIABLE,
    Address,
    _is_allowed,
    _split_address,
    check_allowed,
    check_redirect,
    note_origin,
    redact,
    redact_addresses,
    refuse_credentials,
    remember,
    take_credentials,
    with_credentials,
)
from vernier.errors import ConfigError

PASSWORD = "Tr0ub4dor-and-3"


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("text", "public"),
    [
        (f"https://user:{PASSWORD}@host/sh", "https://host/sh"),
        (f"https://{PASSWORD}@host:8443/sh", "https://host:8443/sh"),
        (f"https://host/sh?token={PASSWORD}", "https://host/sh"),
        (f"https://host/sh?X-Amz-Credential=a&X-Amz-Signature={PASSWORD}", "https://host/sh"),
        (f"https://a.blob.core.windows.net/c/sh?sv=2024&sp=r&sig={PASSWORD}", "https://a.blob.core.windows.net/c/sh"),
        ("https://host/sh?k=f3a9c2d17b6e4805aa21", "https://host/sh"),
        (f"ftp://user:{PASSWORD}@host/sh", "ftp://user@host/sh"),
        (f"https://user:{PASSWORD}@[::1]:80/sh", "https://[::1]:80/sh"),
    ],
)
def test_credentials_are_not_part_of_the_public_address(text: str, public: str) -> None:
    address = _split_address(text)
    assert address.public == public
    assert address.has_credentials
    assert PASSWORD not in redact_addresses(f"cannot read {text}: no answer")
    assert public in redact_addresses(f"cannot read {text}: no answer")


@pytest.mark.parametrize(
    "text",
    [
        "https://host/sh",
        "https://host/sh?version=3#part",
        "abfs://container@account/sh",
        "sftp://user@host/sh",
        "file:///data/sh",
        "https://github.com/pytorch/vision@main",
        "https://arxiv.org/abs/1512.03385",
    ],
)
def test_an_address_without_credentials_stays_as_it_is(text: str) -> None:
    assert _split_address(text) == Address(text)
    assert redact(f"see {text}, and more") == f"see {text}, and more"


@pytest.mark.parametrize("login", ["user:p@ss", "user:p/w", "user:p#w", "user:p?w"])
def test_a_password_that_would_be_torn_apart_is_refused_without_showing_it(login: str) -> None:
    with pytest.raises(ConfigError, match="write %40 for @") as refused:
        take_credentials(["--data", f"https://{login}@host/sh"])
    assert login.partition(":")[2] not in str(refused.value)
    assert login not in redact(f"cannot read https://{login}@host/sh")


def test_what_was_typed_is_found_again_by_its_public_address() -> None:
    words = take_credentials(["train", "--data", f"https://user:{PASSWORD}@host/sh", "--set", "data.source=s3://b/x"])
    assert words == ["train", "--data", "https://host/sh", "--set", "data.source=s3://b/x"]
    assert with_credentials("https://host/sh") == Address("https://host/sh", "user", PASSWORD)
    assert with_credentials("https://host/sh/train").password == PASSWORD
    assert with_credentials("https://host/shoes") == Address("https://host/shoes")
    assert with_credentials("https://other/sh").password == ""
    assert redact(f"log of another library: login user with {PASSWORD}") == (
        "log of another library: login user with ***"
    )
    take_credentials(["--data", "https://user:new-password@host/sh"])
    assert with_credentials("https://host/sh").password == "new-password"


def test_percent_signs_of_a_password_are_resolved() -> None:
    take_credentials(["https://us%40er:p%2Fass%3Aword@host/sh"])
    assert with_credentials("https://host/sh") == Address("https://host/sh", "us@er", "p/ass:word")
    assert redact("refused: p/ass:word and p%2Fass%3Aword") == "refused: *** and p%2Fass%3Aword"


def test_passwords_of_proxies_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:{PASSWORD}@proxy:3128")
    assert redact(f"407 from proxy for {PASSWORD}") == "407 from proxy for ***"


def test_files_of_settings_may_not_hold_credentials() -> None:
    with pytest.raises(ConfigError, match="Write https://host/sh there") as refused:
        refuse_credentials(f"https://user:{PASSWORD}@host/sh", "data.source")
    assert PASSWORD not in str(refused.value)


def test_an_address_that_nobody_typed_is_refused_by_the_name_of_the_file_that_asks_for_it() -> None:
    note_origin({"recipe": {"data": {"source": "http://10.0.0.5/sh"}}}, "stranger/config.json")
    with pytest.raises(ConfigError, match=r"stranger/config.json asks for data at http://10.0.0.5/sh") as error:
        check_allowed("http://10.0.0.5/sh")
    assert error.value.works == [("data.source", "http://10.0.0.5/sh")]
    with pytest.raises(ConfigError, match="The settings ask for data at file:///etc"):
        check_allowed("file:///etc")
    take_credentials(["--data", "http://10.0.0.5/sh/"])
    check_allowed("http://10.0.0.5/sh")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://host/sets", True),
        ("https://host/sets/birds", True),
        ("https://HOST:443/sets/birds", True),
        ("https://host/setsuna", False),
        ("https://host/sets/../private", False),
        ("https://host/sets/%2e%2e/private", False),
        ("https://host/", False),
        ("http://host/sets", False),
        ("https://host:8443/sets", False),
        ("https://host.evil.example/sets", False),
        ("https://host@evil.example/sets", False),
        ("s3://bucket/anything", True),
        ("s3://bucket2/anything", False),
        ("abfs://container@account/x", True),
        ("abfs://other@account/x", False),
    ],
)
def test_an_allowed_address_allows_what_lies_below_it(
    address: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "https://host/sets s3://bucket abfs://container@account")
    assert _is_allowed(address) is allowed


@pytest.mark.parametrize("address", ["simplecache::https://host/sh", "nosuch://x", "https://h/x::file:///etc"])
def test_other_kinds_of_addresses_are_refused_even_when_typed(address: str) -> None:
    take_credentials([address])
    with pytest.raises(ConfigError, match="begins with one of"):
        check_allowed(address)


def test_a_typed_address_that_was_read_is_remembered_for_this_user_only(tmp_path: Path) -> None:
    remember("https://host/sh")
    remember("https://host/sh")
    record = tmp_path / "home" / "addresses"
    assert record.read_text() == "https://host/sh\n"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert _is_allowed("https://host/sh")
    assert not _is_allowed("https://host/other")


def test_a_home_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    remember("https://host/sh")
    assert not _is_allowed("https://host/sh")


@pytest.mark.parametrize(
    ("start", "target", "followed"),
    [
        ("https://host/a", "https://host/b", True),
        ("http://host/a", "https://host/a", True),
        ("https://host/a", "http://host/a", False),
        ("https://host/a", "https://other/a", False),
        ("https://host/a", "https://mirror/files/a", True),
        ("https://host/a", "http://169.254.169.254/latest/meta-data", False),
        ("http://127.0.0.1:80/a", "http://127.0.0.1:8080/a", False),
        ("https://host/a", "file:///etc/passwd", False),
    ],
)
def test_a_server_may_not_send_the_reader_anywhere(
    start: str, target: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "https://mirror/files")
    if followed:
        check_redirect(start, target)
    else:
        with pytest.raises(ConfigError, match="is not followed"):
            check_redirect(start, target)


def test_a_traceback_has_no_credentials() -> None:
    code = (
        "from vernier.addresses import hide_credentials_in_tracebacks as hide; hide()\n"
        f"raise OSError('no answer from https://user:{PASSWORD}@host/sh and {PASSWORD}')"
    )
    variables = {**os.environ, VARIABLE: f"https://user:{PASSWORD}@host/sh"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert "OSError: no answer from https://host/sh and ***" in done.stderr
    assert done.returncode == 1
    assert PASSWORD not in done.stderr
