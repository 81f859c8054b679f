"""The live view: the page on this machine's loopback, made anew when the files of its runs change."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.report.page.build import Page, build
from vernier.report.page.collect import collect
from vernier.store import RunDir

HOST = "127.0.0.1"


class Live:
    """The current page of some paths; built again only when a file below them has changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._lock = threading.Lock()
        self._seen: tuple[Any, ...] | None = None
        self._page: Page | None = None
        self._tag = ""

    def now(self) -> tuple[Page, str]:
        """The page, and a tag that changes with its content."""
        with self._lock:
            seen = tuple(_traces_of_change(self._paths))
            if self._page is None or seen != self._seen:
                self._page, self._seen = build(collect(self._paths)), seen
                content = json.dumps([(p["id"], p["digest"]) for p in self._page.news()["sections"]])
                self._tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'
            return self._page, self._tag


def _traces_of_change(paths: Sequence[Path]) -> Iterator[tuple[Any, ...]]:
    """Every file but the checkpoints', with size and time; and whether somebody holds the run."""
    for path in paths:
        inside = (p for p in sorted(path.rglob("*")) if "checkpoints" not in p.parts) if path.is_dir() else (path,)
        for file in inside:
            try:
                about = file.stat()
            except FileNotFoundError:
                continue
            yield str(file), about.st_size, about.st_mtime_ns
            if file.name == "run.lock":
                yield str(file), RunDir(file.parent).is_locked()


class _Handler(BaseHTTPRequestHandler):
    """`/` is the page, `/update` what has changed."""

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
            self._answer(200, "application/json", json.dumps(page.news()).encode(), ETag=tag)

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
    """Listens on loopback only, and answers only those who ask for it by one of its own names."""

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
