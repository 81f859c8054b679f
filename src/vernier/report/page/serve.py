"""The live view: serves the page on the loopback address, and builds it again when files of its runs change.

Other users of the machine can connect too. They may read the page, and nothing they send or leave unsent keeps it from
others: requests have a time limit, and so has their number.
"""

import gzip
import hashlib
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vernier.clock import now_s
from vernier.errors import ConfigError
from vernier.references import given
from vernier.store import RunDir

from .build import Page, build
from .collect import collect, smoke_runs

HOST = "127.0.0.1"
REQUEST_S = 10.0
"""A request must be complete after this time, and its answer taken."""
MAX_CONNECTIONS = 64
"""Beyond these, the connection that is open longest is closed. A browser uses up to six."""
FileState = tuple[str, int, int]


class Live:
    """The current page of some paths; built again only when a file below them has changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._lock = threading.Lock()
        self._fingerprint: tuple[FileState, ...] | None = None
        self._page: Page | None = None
        self._tag = ""

    def now(self) -> tuple[Page, str]:
        """The page, and a tag that changes with its content."""
        with self._lock:
            fingerprint = tuple(_file_states(self._paths))
            if self._page is None or fingerprint != self._fingerprint:
                self._page, self._fingerprint = build(collect(self._paths), smoke_runs(self._paths)), fingerprint
                content = json.dumps([(p["id"], p["digest"]) for p in self._page.update()["sections"]])
                self._tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'
            return self._page, self._tag


def _file_states(paths: Sequence[Path]) -> Iterator[FileState]:
    """Name, size and time of every file except checkpoints, and whether a process holds the run."""
    for path in paths:
        inside = (p for p in sorted(path.rglob("*")) if "checkpoints" not in p.parts) if path.is_dir() else (path,)
        for file in inside:
            try:
                stat = file.stat()
            except FileNotFoundError:
                continue
            yield str(file), stat.st_size, stat.st_mtime_ns
            if file.name == "run.lock":
                yield str(file), int(RunDir(file.parent).is_locked()), 0


class _Incoming(io.RawIOBase):
    """What a connection sends, until a deadline: a client that sends a byte now and then does not move it."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._until_s = connection, now_s() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until_s - now_s()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """`/` is the page, `/update` its changed parts."""

    server: "Server"

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Incoming(self.connection, self.server.request_s))

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            self._answer(403, "text/plain", b"This page is for this machine only.\n")
            return
        if self.path not in ("/", "/update"):
            self._answer(404, "text/plain", b"There is only / here.\n")
            return
        try:
            page, tag = self.server.live.now()
        except ConfigError as error:
            self._answer(500, "text/plain; charset=utf-8", f"{error}\n".encode())
            return
        if self.path == "/":
            self._answer(200, "text/html; charset=utf-8", page.html(live=True).encode())
        elif self.headers.get("If-None-Match") == tag:
            self._answer(304, "application/json", b"", ETag=tag)
        else:
            self._answer(200, "application/json", json.dumps(page.update()).encode(), ETag=tag)

    def _answer(self, code: int, kind: str, body: bytes, **headers: str) -> None:
        packed = "gzip" in self.headers.get("Accept-Encoding", "") and len(body) > 1000
        body = gzip.compress(body, 5) if packed else body
        self.send_response(code)
        fixed = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "X-Frame-Options": "DENY",
        }
        self.connection.settimeout(self.server.request_s)  # for all of the answer
        for name, value in {**fixed, **({"Content-Encoding": "gzip"} if packed else {}), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Listens on loopback only, and answers only requests for one of its own host names."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, live: Live, port: int = 0, *, request_s: float = REQUEST_S) -> None:
        self.live, self.request_s = live, request_s
        self._connections: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "0 to 65535"
            raise ConfigError(
                f"Cannot listen on {given('port', port)}: {why}. Give another one, or none for a free one."
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections[request] = None
            oldest = next(iter(self._connections)) if len(self._connections) > MAX_CONNECTIONS else None
            if oldest is not None:
                del self._connections[oldest]
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves, or is too slow, is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"
