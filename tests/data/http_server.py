"""A local HTTP server that honours ranges."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves files from a dictionary, honours ranges, and can hang up early."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.hang_up_after: int | None = None
        self.knows_ranges = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                content = outer.files.get(self.path.lstrip("/"))
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
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
