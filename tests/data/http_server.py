"""A local HTTP server that honours ranges."""

import base64
import os
import ssl
import threading
from collections import Counter
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from vernier.addresses import VARIABLE


class Server:
    """Serves files from a dictionary, honours ranges, and can hang up early.

    `login` ("user:password") or `query` ("sig=...") must come with each request where they are set; `redirects` sends a
    path elsewhere; `hits` counts the answers to requests. `troubles` of a path are what its next answers are: an error
    (`down`: also to a HEAD request), other content, or silence.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.hang_up_after: int | None = None
        self.knows_ranges = True
        self.login, self.query, self.hits = "", "", 0
        self.redirects: dict[str, str] = {}
        self.redirect_header = "Location"
        self.headers: list[Message] = []
        self.troubles: dict[str, list[Literal["down", "error", "garbage", "silence"]]] = {}
        self.downloads: Counter[str] = Counter()
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                outer.hits += 1
                outer.headers.append(self.headers)
                path, _, query = self.path.partition("?")
                if target := outer.redirects.get(path):
                    self.send_response(302)
                    self.send_header(outer.redirect_header, target)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                basic = base64.b64encode(outer.login.encode()).decode()
                if (outer.login and self.headers.get("Authorization") != f"Basic {basic}") or query != outer.query:
                    self.send_error(401)
                    return
                content = outer.files.get(path.lstrip("/"))
                requested = self.headers.get("Range")
                outer.ranges.append(requested)
                requested = requested if outer.knows_ranges else None
                if content is None:
                    self.send_error(404)
                    return
                first, last = 0, len(content) - 1
                if requested:
                    a, _, b = requested.removeprefix("bytes=").partition("-")
                    first, last = int(a), int(b) if b else last
                    if first >= len(content):
                        self.send_error(416)
                        return
                part = content[first : last + 1]
                trouble = outer.troubles.get(path.lstrip("/"), [])
                if trouble[:1] == ["down"]:
                    trouble.pop(0)
                    self.send_error(503)
                    return
                if self.command == "GET":
                    outer.downloads[path.lstrip("/")] += 1
                    match trouble.pop(0) if trouble else None:
                        case "error":
                            self.send_error(503)
                            return
                        case "garbage":
                            part = b"?" * len(part)
                        case "silence":
                            outer.closing.wait(60)
                            return
                self.send_response(206 if requested else 200)
                self.send_header("Content-Length", str(len(part)))
                self.send_header("Accept-Ranges", "bytes")
                if requested:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(part[: outer.hang_up_after])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._allow()
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def use_tls(self, key: Path, certificate: Path) -> None:
        """From now on this is an https:// server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._disallow()
        self.url = self.url.replace("http://", "https://")
        self._allow()

    def _allow(self) -> None:
        """Tests open addresses directly: as if a person had typed this one."""
        os.environ[VARIABLE] = f"{self.url} {os.environ.get(VARIABLE, '')}".strip()

    def _disallow(self) -> None:
        os.environ[VARIABLE] = " ".join(a for a in os.environ.get(VARIABLE, "").split() if a != self.url)

    def close(self) -> None:
        self._disallow()
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
