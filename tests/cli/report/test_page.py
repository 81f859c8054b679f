"""`vernier report`: the file it writes, the live view, and wrong use."""

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done, only_run
from tests.report.page.conftest import detector
from vernier.report.page.collect import collect

Vernier = Callable[..., Done]


def test_the_page_is_written_to_the_path_that_is_printed(vernier_here: Vernier, tmp_path: Path) -> None:
    run = detector(tmp_path / "runs")
    done = vernier_here("report", str(run), "-o", str(tmp_path / "new" / "page.html"), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert Path(document["page"]).stat().st_size == document["bytes"]
    assert document["runs"][0]["status"] == "finished"
    assert document["runs"][0]["smoke"] is False
    plain = vernier_here("report", str(run))
    assert plain.code == 0
    assert (run / "report.html").is_file()
    assert "At a glance, Training" in plain.out


def test_wrong_use_gets_a_message_with_a_way_out(vernier_here: Vernier, tmp_path: Path) -> None:
    run = detector(tmp_path / "runs")
    for arguments, words in [
        (("report",), "No runs given"),
        (("report", str(tmp_path / "none")), "does not exist"),
        (("report", str(tmp_path)), "not a run directory"),
        (("report", str(run), "--port", "80"), "--port needs --watch"),
        (("report", str(run), "--watch", "-o", "x.html"), "Leave out one"),
        (("report", str(run), "--watch", "--port", "99999"), "Cannot listen on port 99999"),
        (("report", str(run), "-o", "/proc/none/x.html"), "Cannot write"),
    ]:
        done = vernier_here(*arguments)
        assert done.code == 2, arguments
        assert words in done.err


def test_a_damaged_file_is_named(vernier_here: Vernier, tmp_path: Path) -> None:
    damaged = tmp_path / "bench.json"
    damaged.write_text('{"rounds": [], "rows": [{"arm": "x"}]}')
    done = vernier_here("report", str(damaged), "-o", str(tmp_path / "page.html"))
    assert done.code == 2
    assert f"Cannot read {damaged}" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_profiled_run_links_to_its_trace(vernier_here: Vernier, tiny: list[str], tmp_path: Path) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "8", "--profile-steps", "4:5", "--train-only")
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    assert vernier_here("report", str(run)).code == 0
    html = (run / "report.html").read_text()
    link = re.search(r'<a href="(traces/trace[^"]+)"', html)
    assert link is not None
    assert (run / link[1]).is_file()
    (subject,) = collect([run])
    assert len(subject.profiles[0].kernels) > 10
    assert "kernels and operations" in html


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    run = detector(tmp_path)
    command = [sys.executable, "-m", "vernier", "report", "--watch", str(run)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            port = int(url.rsplit(":", 1)[1].strip("/"))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 0
            assert "live view ended" in errors
        finally:
            process.kill()  # leaving the block waits for it, however long
