"""Addresses of data (https://, s3://, ...): which of them may be read, and their credentials, which are never recorded.

A password or token enters in two ways: typed as part of an address, or in $VERNIER_ADDRESSES. `take_credentials` moves
what was typed into that variable, where child processes find it; everything else, settings, messages and files, only
ever has the public form of the address. `redact` is the second line of defence, for messages of other libraries.

An address that a file asks for (a recipe, a run's config.json) is read only if a person typed it, or allowed it in the
same variable. Reading is up to `data.sources.containers.remote`.
"""

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import ConfigError
from .folders import cache_home
from .references import use
from .wording import printable

VARIABLE = "VERNIER_ADDRESSES"
"""Addresses that may be read, each with its credentials where it needs some, separated by spaces."""
SCHEMES = (
    *("https", "http", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "hf"),
    *("ftp", "sftp", "ssh", "hdfs", "webhdfs", "file", "memory"),
)
HIDDEN = "***"
_WEB = ("http", "https")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "ssh": 22}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>\\`]+")
_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|sig\b|signature|credential|auth|api.?key|access.?key|^key$|^sas$|^policy$|key-pair-id|"
    r"^x-(amz|goog)-",
    re.IGNORECASE,
)
_PROXIES = tuple(f(f"{kind}_proxy") for kind in ("http", "https", "ftp", "all") for f in (str.lower, str.upper))
_SHORTEST_SECRET = 6
"""Shorter texts are not searched for in messages: they would be found in ordinary words."""
_ORIGINS: dict[str, str] = {}


@dataclass(frozen=True)
class Address:
    """An address in two parts: `public` may be recorded and shown, `user`, `password` and `query` may not."""

    public: str
    user: str = ""
    password: str = ""
    query: str = ""

    @property
    def has_credentials(self) -> bool:
        return bool(self.user or self.password or self.query)

    def covers(self, other: str) -> bool:
        """Whether another public address is this one or lies below it."""
        mine, its = urlsplit(self.public), urlsplit(other)
        if _origin(mine) != _origin(its) or ".." in unquote(its.path).split("/"):
            return False
        path = mine.path.rstrip("/")
        return its.path.rstrip("/") == path or its.path.startswith(f"{path}/")


def _split_address(text: str) -> Address:
    """Separate an address from its credentials. Raises ConfigError where it cannot be told what belongs to them."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise _unclear(text) from None
    login, at, host = parts.netloc.rpartition("@")
    if "@" in login or (at and "@" in parts.path + parts.query + parts.fragment):
        raise _unclear(text)
    user, _, password = login.partition(":")
    secret_query = any(_is_secret(*piece.partition("=")[::2]) for piece in re.split("[&;]", parts.query))
    if parts.scheme.lower() in _WEB:
        kept_login = ""
    else:  # a user's name is no secret there, and a container stands in its position: abfs://container@account/
        kept_login, user = (f"{user}@" if at else ""), user if password else ""
    public = f"{text.partition('://')[0]}://{kept_login}{host}{parts.path}"
    if not secret_query:
        public += (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
    return Address(public, unquote(user), unquote(password), parts.query if secret_query else "")


def _unclear(text: str) -> ConfigError:
    return ConfigError(
        f"{text.partition('://')[0]}://{HIDDEN} is not an address. In a user name or password, write %40 for @, %2F "
        "for /, %3A for :, %3F for ? and %23 for #."
    )


def _is_secret(name: str, value: str) -> bool:
    """A part of a query that is named like a credential, or whose value looks like one: long, letters and digits."""
    long = len(value) >= 20 and re.search("[A-Za-z]", value) and re.search("[0-9]", value)
    return bool(value and (_SECRET_NAME.search(name) or long))


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    """Scheme, host and port; a container before the host counts as part of it."""
    scheme, container = parts.scheme.lower(), parts.username or ""
    port = parts.port or _DEFAULT_PORTS.get(scheme)
    return scheme, f"{'' if scheme in _WEB else container}@{(parts.hostname or '').lower()}", port


# ------------------------------------------------------------------------------------------------------- credentials


def take_credentials(words: Sequence[str]) -> list[str]:
    """The words of a command line without credentials: the addresses in them go to $VERNIER_ADDRESSES, as typed."""

    def take(match: re.Match[str]) -> str:
        address = _split_address(match[0])
        addresses = os.environ.get(VARIABLE, "").split()
        if match[0] not in addresses:  # what was typed last counts
            os.environ[VARIABLE] = " ".join([match[0], *addresses])
        return address.public

    return [_ADDRESS.sub(take, word) for word in words]


def _listed() -> list[Address]:
    return [_split_address(text) for text in os.environ.get(VARIABLE, "").split() if "://" in text]


def with_credentials(public: str) -> Address:
    """An address with the credentials that were given for it, or for one above it, if any were."""
    for address in _listed():
        if address.has_credentials and address.covers(public):
            return Address(public, address.user, address.password, address.query)
    return Address(public)


def refuse_credentials(text: str, setting: str) -> None:
    """Raise ConfigError for an address with credentials in a place that is recorded."""
    if "://" in text and (address := _split_address(text)).has_credentials:
        raise ConfigError(
            f"{setting} has a password or token in it, and files of settings are copied and shared. Write "
            f"{address.public} there, and give the address with its credentials as "
            f"{use('data.source', slot='ADDRESS')}, or in the environment variable {VARIABLE}."
        )


def redact(text: str) -> str:
    """A message without credentials: those of addresses in it, and those that this process was given.

    Not for records: a password may be a word that has a meaning there.
    """
    text = redact_addresses(text)
    for secret in _secrets(tuple(os.environ.get(name, "") for name in (VARIABLE, *_PROXIES))):
        text = text.replace(secret, HIDDEN)
    return text


def redact_addresses(text: str) -> str:
    """A text without the credentials of the addresses in it: for records, also those of earlier versions."""
    return _ADDRESS.sub(lambda match: _public_or_hidden(match[0]), text) if "://" in text else text


def _public_or_hidden(text: str) -> str:
    try:
        return _split_address(text).public
    except ConfigError:
        return f"{text.partition('://')[0]}://{HIDDEN}" if "@" in text else text


@lru_cache(maxsize=8)
def _secrets(variables: tuple[str, ...]) -> list[str]:
    """What must not be shown, longest first, of variables with addresses."""
    secrets: set[str] = set()
    for text in " ".join(variables).split():
        with suppress(ConfigError):
            address = _split_address(text) if "://" in text else Address("")
            values = [piece.partition("=")[::2] for piece in re.split("[&;]", address.query)]
            secrets |= {value for name, value in values if _is_secret(name, value)}
            secrets |= {address.password or address.user}
    secrets |= {unquote(secret) for secret in secrets}
    return sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)


def hide_credentials_in_tracebacks() -> None:
    """From now on, an exception that ends this process is printed without credentials."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(printable(redact(text), lines=True))

    sys.excepthook = show
    threading.excepthook = lambda failed: show(
        failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback
    )


# -------------------------------------------------------------------------------------------------------- permission


def note_origin(tree: Any, file: object) -> None:
    """Remember which file of settings asks for an address, so that a refusal can name it."""
    with suppress(KeyError, TypeError):
        source = tree["recipe"]["data"]["source"]
        if "://" in source:
            _ORIGINS[redact_addresses(source).rstrip("/")] = str(file)


def check_allowed(public: str) -> None:
    """Raise ConfigError unless a person typed or allowed this address, and Vernier reads its kind."""
    scheme = public.partition("://")[0].lower()
    if scheme not in SCHEMES or "::" in public:
        raise ConfigError(f"Cannot read {redact(public)}: an address begins with one of {', '.join(SCHEMES)}, and ://.")
    public = public.rstrip("/")
    if _is_allowed(public):
        return
    origin = _ORIGINS.get(public)
    raise ConfigError(
        f"{f'{origin} asks' if origin else 'The settings ask'} for data at {public}, which you have not typed on this "
        f"machine before. If you trust it, give {use('data.source', public)}, or put the address, or its beginning, "
        f"into the environment variable {VARIABLE}."
    )


def _is_allowed(public: str) -> bool:
    """Whether an address lies below one that was typed, now or earlier, or allowed in the variable."""
    return any(address.covers(public) for address in (*_listed(), *_typed_before()))


def remember(public: str) -> None:
    """Note an address that a person typed or allowed and that was read, so that a run that names it can be used."""
    if any(address.covers(public) for address in _typed_before()):
        return
    with suppress(OSError):  # a home that cannot be written: the address has to be typed again, and a message says so
        _record().parent.mkdir(parents=True, exist_ok=True)
        with open(_record(), "a", encoding="utf-8", opener=_opener(0o600)) as f:
            f.write(f"{public}\n")


def _record() -> Path:
    return cache_home() / "addresses"


def _opener(mode: int) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags, mode)


def _typed_before() -> list[Address]:
    try:
        lines = _record().read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    addresses = []
    for line in lines:
        with suppress(ConfigError):
            addresses.append(_split_address(line))
    return addresses


def check_redirect(start: str, target: str) -> None:
    """Raise ConfigError where a server sends the reader to another one that nobody allowed, or from https to http."""
    before, after = urlsplit(start), urlsplit(target)
    if _origin(before) == _origin(after):
        return
    upgraded = (before.scheme, after.scheme) == ("http", "https") and before.hostname == after.hostname
    default = (before.port or 80, after.port or 443) == (80, 443)
    if (upgraded and default) or (after.scheme in _WEB and _is_allowed(_split_address(target).public)):
        return
    raise ConfigError(
        f"{redact(start)} leads to {redact(target)}, another server, and is not followed. If you trust that one, put "
        f"its address into the environment variable {VARIABLE}."
    )
