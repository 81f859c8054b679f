import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.report.page.conftest import STEP, emit
from tests.report.run_dirs import step_times, write_run
from vernier.report.page.build import Page
from vernier.report.page.serve import MAX_CONNECTIONS, Live, Server
from vernier.store import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(write_run(tmp_path, "running", step_times(1, n=100), status="running"))


@pytest.fixture
def server(run: RunDir) -> Iterator[Server]:
    with Server(Live([run.path])) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def ask(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_the_page_is_served_to_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    code, headers, body = ask(server, "/")
    assert code == 200
    assert b'data-live="yes"' in body
    assert b"connect-src &#39;self&#39;" in body
    assert headers["Cache-Control"] == "no-store"
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/../../etc/passwd")[0] == 404


def test_an_update_is_sent_when_the_run_continues_and_only_then(server: Server, run: RunDir) -> None:
    code, headers, body = ask(server, "/update")
    assert code == 200
    before = json.loads(body)
    assert ask(server, "/update", If_None_Match=headers["ETag"])[0] == 304
    emit(run, STEP)
    code, again, body = ask(server, "/update", If_None_Match=headers["ETag"])
    assert code == 200
    after = json.loads(body)
    assert again["ETag"] != headers["ETag"]
    rows = json.loads(after["figures"])["loss"]["rows"]
    assert [1.1, 110, 0.25] in [[*r[1:3], r[4]] for r in rows]
    digests = [{p["id"]: p["digest"] for p in update["sections"]} for update in (before, after)]
    assert digests[0]["training"] != digests[1]["training"]
    assert digests[0]["environment"] == digests[1]["environment"]


def test_a_crash_is_an_update_although_no_file_changes(run: RunDir) -> None:
    live = Live([run.path])
    with run.locked():
        running, tag = live.now()
    stopped, other = live.now()
    assert "running" in running.top
    assert "crashed" in stopped.top
    assert tag != other


# ------------------------------------------------------------------------------------------------- clients that disturb


@pytest.fixture
def hasty(run: RunDir) -> Iterator[Server]:
    """A server that waits for half a second only."""
    with Server(Live([run.path]), request_s=0.5) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=30)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within half a minute."""
    return any(condition() or threading.Event().wait(0.05) for _ in range(600))


def test_silent_connections_are_bounded_and_the_page_is_still_served(server: Server) -> None:
    threads = threading.active_count()
    silent = [connect(server) for _ in range(300)]
    assert ask(server, "/")[0] == 200
    assert wait_until(lambda: server.connections <= MAX_CONNECTIONS)
    assert wait_until(lambda: threading.active_count() <= threads + MAX_CONNECTIONS)
    assert silent[0].recv(100) == b"", "the oldest were closed"
    for connection in silent:
        connection.close()
    assert wait_until(lambda: server.connections == 0)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_a_request_that_does_not_come_is_given_up(hasty: Server, begin: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(begin)
        assert connection.recv(100) == b""
    assert wait_until(lambda: hasty.connections == 0)


def test_a_byte_now_and_then_does_not_keep_a_connection(hasty: Server) -> None:
    """What is called slowloris: each byte alone comes in time."""

    def drip(connection: socket.socket) -> None:
        for _ in range(600):
            connection.sendall(b"X")
            threading.Event().wait(0.05)

    with connect(hasty) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            drip(connection)
    assert wait_until(lambda: hasty.connections == 0)


def test_an_answer_that_nobody_takes_is_given_up(hasty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is made larger than what the kernel buffers."""
    monkeypatch.setattr(Page, "html", lambda self, live: "x" * 20_000_000)
    with connect(hasty) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{hasty.server_port}\r\n\r\n".encode())
        assert wait_until(lambda: hasty.connections == 1)
        assert wait_until(lambda: hasty.connections == 0)


def test_a_client_that_leaves_is_no_traceback(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        connection = connect(server)
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        # Closing with a reset: the answer meets a connection that is gone.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert wait_until(lambda: server.connections == 0)
    assert ask(server, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_endless_headers_and_lines_are_refused(server: Server) -> None:
    assert ask(server, "/", Cookie="x" * 100_000)[0] == 431
    assert ask(server, "/" + "x" * 100_000)[0] == 414
