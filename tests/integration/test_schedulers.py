"""Scripts of docs/resume.md and examples/cluster, run by what they are for: Slurm, Kubernetes, a spot notice."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.conftest import TINY, command, only_run
from tests.documented import DOCS, fences
from tests.integration.slurm import PATIENCE_S, Slurm, free_port, one_node_slurm, wait_until

CLUSTER = Path(__file__).resolve().parents[2] / "examples" / "cluster"
DOCUMENTED_TRAINING = "nvidia-resnet50-90e --data /data/imagenet --out /shared/runs"
LENGTH = ["--epochs", "20", "--set", "eval.every_epochs=20", "--print-every", "1"]


def _documented(mark: str) -> str:
    """The block of the page with this mark."""
    (text,) = [fence.text for fence in fences(DOCS / "resume.md") if mark in fence.text]
    return text


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `vernier` is this one, as an installation makes it."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "vernier"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom vernier.__main__ import main\nsys.exit(main())\n")
    script.chmod(0o755)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def undisturbed(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The end of the same training without interruption."""
    out = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(command("train", *_training(shapes, out)), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return _weights(only_run(out))


def _training(shapes: Path, out: Path) -> list[str]:
    return ["--data", str(shapes), "--out", str(out), *TINY, *LENGTH]


def _weights(run: Path) -> dict[str, bytes]:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    return {newest.name: b"", **{p.name: p.read_bytes() for p in newest.glob("*.safetensors")}}


def _wait_for_steps(out: Path, session: int) -> None:
    """Until this session (1, 2, ...) has trained three steps."""

    def trained() -> bool:
        texts = [p.read_text() for p in out.glob("*/events.jsonl")]
        parts = texts[0].split('"kind": "start"') if texts else []
        return len(parts) > session and parts[session].count('"kind": "step"') >= 3

    wait_until(trained, f"session {session} trains")


def _status(out: Path) -> str:
    status: str = json.loads((only_run(out) / "run.json").read_text())["status"]
    return status


# -------------------------------------------------------------------------------------------------------------- Slurm


@pytest.fixture
def slurm(tmp_path: Path, programs: str) -> Iterator[Slurm]:
    folder = tmp_path / "slurm"
    folder.mkdir(mode=0o755)
    with one_node_slurm(folder, programs) as running:
        yield running


def test_the_slurm_script_requeues_itself_and_ends_bit_for_bit_the_same(
    slurm: Slurm, shapes: Path, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    out, script, log = tmp_path / "runs", tmp_path / "job.sh", tmp_path / "log"
    text = _documented("#SBATCH")
    assert DOCUMENTED_TRAINING in text
    script.write_text(text.replace(DOCUMENTED_TRAINING, shlex.join(_training(shapes, out))))
    job = slurm("sbatch", "--parsable", "--ntasks-per-node=1", f"--output={log}", str(script))
    try:
        _wait_for_steps(out, 1)
        slurm("scancel", "--signal=USR1", job)  # what --signal=USR1@120 does, without waiting for hours
        slurm.start_requeued(job, 1)
        assert "stopped by SIGUSR1: saved" in log.read_text()
        _wait_for_steps(out, 2)
        slurm("scontrol", "requeue", job)  # SIGTERM, as for a preempted job
        slurm.start_requeued(job, 2)
        assert "stopped by SIGTERM: saved" in log.read_text()
        wait_until(lambda: slurm.job(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job ends")
        assert slurm.job(job)["JobState"] == "COMPLETED", log.read_text()
        assert (slurm.job(job)["ExitCode"], _status(out)) == ("0:0", "finished")
        assert _weights(only_run(out)) == undisturbed
        _check_end_time(slurm, tmp_path)
    finally:
        subprocess.run(["scancel", job], env=slurm._environ, capture_output=True)


def _check_end_time(slurm: Slurm, tmp_path: Path) -> None:
    """The line for a Slurm that does not set SLURM_JOB_END_TIME."""
    script, log = tmp_path / "end.sh", tmp_path / "end"
    script.write_text(
        f"#!/bin/bash\n{_documented('SLURM_JOB_END_TIME=')}\necho $((SLURM_JOB_END_TIME - $(date +%s)))\n"
    )
    slurm("sbatch", "--wait", "--time=00:30:00", f"--output={log}", str(script))
    assert 0 < int(log.read_text()) <= 30 * 60


RECIPE = """
name = "tiny"
global_batch = 16
[model]
name = "resnet8-small"
width = 8
stem = "small"
[data]
image_px = 32
eval_px = 32
eval_short_side_px = 32
[schedule]
epochs = 4000
[eval]
every_epochs = 0
[checkpoint]
every_epochs = 1000
[limits]
log_every_steps = 1
"""
"""Too long to end by itself before a test on a busy machine stops it."""


def _example(name: str, shapes: Path, tmp_path: Path, **changes: str) -> Path:
    """A script of `examples/cluster`, edited as a user would: for a small run on the CPU of this host."""
    (tmp_path / "tiny.toml").write_text(RECIPE)
    text = (CLUSTER / name).read_text()
    training = f"{tmp_path / 'tiny.toml'} --data {shapes} --out {tmp_path / 'runs'} --device cpu"
    more = "--set machine.threads=1 --set machine.eval_batch=16"
    for old, new in {
        "nvidia-resnet50-90e --data /data/imagenet --out /shared/runs --device cuda": training,
        "--set 'machine.precision=\"bf16\"'": more,
        "source /shared/vernier/bin/activate\n": "",
        **changes,
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    script = tmp_path / name
    script.write_text(text)
    return script


def test_the_example_slurm_script_resumes_after_its_time_is_over(slurm: Slurm, shapes: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "runs", tmp_path / "log"
    changes = {
        "--nodes=4 --ntasks-per-node=8 --cpus-per-task=12": "--nodes=1 --ntasks-per-node=2",
        "#SBATCH --gpus-per-node=8\n": "",
        "--partition=gpu": f"--output={log}",
        "--cpus-per-task=12 ": "",
        "--procs 32": "--procs 2",
    }
    script = _example("train.sbatch", shapes, tmp_path, **changes)
    job = slurm("sbatch", "--parsable", str(script))
    try:
        _wait_for_steps(out, 1)
        slurm("scancel", "--signal=USR1", job)
        slurm.start_requeued(job, 1)
        assert "stopped by SIGUSR1: saved" in log.read_text()
        _wait_for_steps(out, 2)
        assert "resuming from step" in log.read_text()
        config = json.loads((only_run(out) / "config.json").read_text())
        assert (config["machine"]["procs"], config["limits"]["max_time"]) == (2, "auto")
    finally:
        subprocess.run(["scancel", job], env=slurm._environ, capture_output=True)
        wait_until(lambda: slurm.job(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job ends")


# ---------------------------------------------------------------------------------------------------------------- ssh


def test_the_example_ssh_script_stops_with_75_and_resumes(shapes: Path, tmp_path: Path, programs: str) -> None:
    changes = {
        "(node1 node2)": "(127.0.0.1 localhost)",
        "=node1": "=127.0.0.1",
        "29500": str(free_port()),
        "--nproc-per-node=8": "--nproc-per-node=1",
        "--procs 16": "--procs 2",
    }
    script, out = _example("hosts.sh", shapes, tmp_path, **changes), tmp_path / "runs"
    stand_in = tmp_path / "bin" / "ssh"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/bash\necho "${@: -2:1}" >> "$HOSTS"\nexec bash -c "${@: -1}"\n')
    stand_in.chmod(0o755)
    environ = {**os.environ, "PATH": f"{stand_in.parent}:{programs}", "HOSTS": str(tmp_path / "hosts")}
    for session in (1, 2):
        running = subprocess.Popen(["bash", str(script)], env=environ, stderr=subprocess.PIPE, text=True)
        try:
            _wait_for_steps(out, session)
            running.send_signal(signal.SIGTERM)
            _, err = running.communicate(timeout=PATIENCE_S)
        finally:
            for process in psutil.Process(running.pid).children(recursive=True) if running.poll() is None else ():
                process.kill()
            running.kill()
        assert (running.returncode, _status(out)) == (75, "stopped"), err
        assert ("resuming from step" in err) == (session == 2)
    assert sorted((tmp_path / "hosts").read_text().split()) == ["127.0.0.1"] * 2 + ["localhost"] * 2


def test_the_example_ssh_script_names_a_host_that_failed(shapes: Path, tmp_path: Path) -> None:
    script, stand_in = _example("hosts.sh", shapes, tmp_path), tmp_path / "ssh"
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for codes, result in {(0, 0): (0, ""), (75, 255): (1, "node2: exit code 255\n"), (0, 75): (75, "")}.items():
        stand_in.write_text(f'#!/bin/bash\n[ "${{@: -2:1}}" = node1 ] && exit {codes[0]}\nexit {codes[1]}\n')
        stand_in.chmod(0o755)
        done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == result


# --------------------------------------------------------------------------------------------------------- Kubernetes


def _namespace_of_its_own() -> list[str]:
    """The command that makes another one the first process (PID 1) of a namespace, as in a container."""
    for rights in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *rights, "--pid", "--fork", "--mount-proc", "--kill-child"]
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    pytest.skip("unshare cannot make a PID namespace here")


def _action(rules: list[dict[str, Any]], code: int) -> str:
    """What Kubernetes does when the container ends with this code: the first rule that fits."""
    by_code = [rule for rule in rules if code in rule.get("onExitCodes", {}).get("values", ())]
    return str(by_code[0]["action"]) if by_code else "Count"


def test_the_kubernetes_job_saves_within_the_grace_period_and_resumes(
    shapes: Path, tmp_path: Path, programs: str, undisturbed: dict[str, bytes]
) -> None:
    job = yaml.safe_load(_documented("kind: Job"))["spec"]
    pod, rules = job["template"]["spec"], job["podFailurePolicy"]["rules"]
    assert pod["restartPolicy"] == "Never", "podFailurePolicy is refused with any other"
    assert [_action(rules, code) for code in (75, 2, 1)] == ["Ignore", "FailJob", "Count"]
    words, out = pod["containers"][0]["command"], tmp_path / "runs"
    assert words[:2] == ["vernier", "train"]
    container = [*_namespace_of_its_own(), *words[:2], *_training(shapes, out)]
    environ = {**os.environ, "PATH": programs}
    first = subprocess.Popen(container, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        _wait_for_steps(out, 1)
        (first_process,) = psutil.Process(first.pid).children()
        first_process.send_signal(signal.SIGTERM)
        try:
            _, err = first.communicate(timeout=pod["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            first_process.kill()
            raise
    finally:
        first.kill()
    assert _action(rules, first.returncode) == "Ignore", err
    assert "stopped by SIGTERM: saved" in err
    second = subprocess.run(container, env=environ, capture_output=True, timeout=PATIENCE_S)
    assert second.returncode == 0, second.stderr
    assert b"resuming from step" in second.stderr
    assert _weights(only_run(out)) == undisturbed


# --------------------------------------------------------------------------------------------------------------- spot


class _Metadata(BaseHTTPRequestHandler):
    """The metadata service of AWS: a token for everybody, a notice once there is one."""

    notice = threading.Event()

    def do_PUT(self) -> None:
        known = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._answer(200 if known else 400, b"a-token")

    def do_GET(self) -> None:
        allowed = self.headers.get("X-aws-ec2-metadata-token") == "a-token"
        there = self.notice.is_set() and self.path == "/latest/meta-data/spot/instance-action"
        self._answer(200 if there and allowed else 404 if allowed else 401, b'{"action": "terminate"}')

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_the_spot_script_turns_a_notice_into_a_saved_run(shapes: Path, tmp_path: Path, programs: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the script needs curl")
    out, text = tmp_path / "runs", _documented("169.254.169.254")
    assert DOCUMENTED_TRAINING in text
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    training = shlex.join([*_training(shapes, out), "--epochs", "4000"])
    script = tmp_path / "spot.sh"
    text = text.replace(DOCUMENTED_TRAINING, training).replace("169.254.169.254", f"127.0.0.1:{server.server_port}")
    script.write_text(re.sub(r"sleep 5", "sleep 0.5", text))
    environ = {**os.environ, "PATH": programs, "no_proxy": "127.0.0.1"}
    running = subprocess.Popen(["bash", str(script)], env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        _wait_for_steps(out, 1)
        assert running.poll() is None
        _Metadata.notice.set()
        _, err = running.communicate(timeout=PATIENCE_S)
    finally:
        for child in psutil.Process(running.pid).children() if running.poll() is None else ():
            child.kill()
        running.kill()
        server.shutdown()
    assert running.returncode == 75, err
    assert b"stopped by SIGUSR1: saved" in err
    assert _status(out) == "stopped"
