import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.page.conftest import STEP, emit
from tests.report.run_dirs import step_times, write_run
from vernier.report.page.serve import Live, Server
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
    assert [1.1, 110, 0.25] in [r[1:4] for r in rows]
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
