"""The live view: serves the page on the loopback address, and builds it again when files of its runs change."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.store import RunDir

from .build import Page, build
from .collect import collect, smoke_runs

HOST = "127.0.0.1"
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


class _Handler(BaseHTTPRequestHandler):
    """`/` is the page, `/update` its changed parts."""

    server: "Server"

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
        for name, value in {**fixed, **({"Content-Encoding": "gzip"} if packed else {}), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Listens on loopback only, and answers only requests for one of its own host names."""

    daemon_threads = True

    def __init__(self, live: Live, port: int = 0) -> None:
        self.live = live
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "0 to 65535"
            raise ConfigError(
                f"Cannot listen on port {port}: {why}. Give another --port, or none for a free one."
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"
