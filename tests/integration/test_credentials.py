"""A password in the address of the data: training works with it, and nothing that is written or shown has it."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")

from tests.conftest import TINY, Done, only_run
from tests.data.http_server import Server
from vernier.addresses import VARIABLE
from vernier.compat.preparing.packing import pack_shards
from vernier.data.sources import EncodedSource, open_split

PASSWORD = "correct-horse-battery"


@pytest.fixture
def locked(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Shards behind a password; no address was typed before."""
    for split in ("train", "val"):
        source = open_split(str(shapes), split)
        assert isinstance(source, EncodedSource)
        pack_shards(source, tmp_path / "set", split, shard_bytes=60_000, restarts=False, workers=1)
    server = Server()
    server.files = {f"set/{p.name}": p.read_bytes() for p in (tmp_path / "set").iterdir()}
    server.login = f"me:{PASSWORD}"
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    yield server
    server.close()


def _leaks(folder: Path) -> list[str]:
    """Files below a folder that hold the password, in plain or as a login."""
    return [str(p) for p in folder.rglob("*") if p.is_file() and PASSWORD.encode() in p.read_bytes()]


def _typed(server: Server) -> str:
    return server.url.replace("://", f"://me:{PASSWORD}@") + "/set"


def test_a_run_can_be_made_resumed_evaluated_and_reported_without_recording_the_password(
    vernier_here: Callable[..., Done], locked: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "runs"
    monkeypatch.setattr("sys.argv", ["vernier", "train", "--data", _typed(locked)])
    train = ["train", *TINY, "--out", str(out), "--epochs", "0.4", "--set", "checkpoint.every_steps=2"]
    exports = ["--raport", str(tmp_path / "raport.json"), "--dllogger", str(tmp_path / "dll.json")]
    stopped = vernier_here(*train, "--data", _typed(locked), "--max-steps", "2")
    assert stopped.code == 0, stopped.err
    run = only_run(out)
    done = vernier_here(*train, "--data", _typed(locked), "--resume", "auto", "--json", *exports)
    assert done.code == 0, done.err
    assert "resuming from step 2" in done.err
    assert only_run(out) == run
    assert json.loads((run / "config.json").read_text())["recipe"]["data"]["source"] == f"{locked.url}/set"
    assert f"{locked.url}/set" in json.loads((run / "environment.json").read_text())["command"]
    evaluated = vernier_here("eval", str(run), "--json")
    assert evaluated.code == 0, evaluated.err
    assert vernier_here("report", str(run)).code == 0
    assert _leaks(tmp_path) == []
    assert PASSWORD not in "".join(r.out + r.err for r in (stopped, done, evaluated))


def test_without_the_password_a_message_says_how_to_give_it(
    vernier_here: Callable[..., Done], locked: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "runs"
    train = ["train", *TINY, "--train-only", "--max-steps", "1"]
    assert vernier_here(*train, "--out", str(out), "--data", _typed(locked)).code == 0
    run = only_run(out)
    monkeypatch.setenv(VARIABLE, "")
    again = ["train", "--config", str(run / "config.json"), "--out", str(tmp_path / "again")]
    for words in (again, ["train", "--resume", str(run)], ["eval", str(run)]):
        refused = vernier_here(*words)
        assert refused.code == 2
        assert "answered 401" in refused.err
        assert "USER:PASSWORD@ before the host" in refused.err, "the advice is not redacted itself"
        assert "VERNIER_ADDRESSES" in refused.err
    monkeypatch.setenv(VARIABLE, _typed(locked))
    assert vernier_here(*again).code == 0
    locked.login = "me:another"
    refused = vernier_here("train", *TINY, "--data", _typed(locked), "--out", str(tmp_path / "third"))
    assert refused.code == 2
    assert PASSWORD not in refused.err
    assert _leaks(tmp_path) == []


def test_processes_and_benchmark_configurations_get_the_password_and_do_not_tell(
    vernier: Callable[..., Done],
    vernier_here: Callable[..., Done],
    locked: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The password is on the command line of the first process alone; the others find it in the environment."""
    train = ["train", *TINY, "--train-only", "--max-steps", "1", "--procs", "2", "--out", str(tmp_path / "runs")]
    done = vernier(*train, "--data", _typed(locked), env={"TMPDIR": str(tmp_path)})
    assert done.code == 0, done.err
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    small = [word for word in TINY if word not in ("--global-batch", "16")]
    bench = ["bench", "train", *small, "--batch", "8", "--steps", "1", "--repeats", "1", "--out", str(tmp_path / "b")]
    measured = vernier_here(*bench, "--data", _typed(locked))
    assert measured.code == 0, measured.err
    assert PASSWORD not in done.out + done.err + measured.out + measured.err
    assert _leaks(tmp_path) == []


def test_a_strangers_run_makes_no_request(
    vernier_here: Callable[..., Done], locked: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config.json names an inner address; training, evaluating and reporting leave it alone."""
    locked.login = ""
    out = tmp_path / "runs"
    train = ["train", *TINY, "--train-only", "--max-steps", "1"]
    assert vernier_here(*train, "--out", str(out), "--data", f"{locked.url}/set").code == 0
    run = only_run(out)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "another home"))
    hits = locked.hits
    config = str(run / "config.json")
    (tmp_path / "mine.toml").write_text(f'[data]\nsource = "{locked.url}/set"\n')
    for words, file in (
        (["train", "--config", config, "--out", str(tmp_path / "x")], config),
        (["train", "--resume", str(run)], config),
        (["eval", str(run)], str(run)),
        (["train", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "x")], "mine.toml"),
    ):
        refused = vernier_here(*words)
        assert refused.code == 2, refused.err
        assert f"asks for data at {locked.url}/set, which you have not typed" in refused.err
        assert file in refused.err
        assert f"--data {locked.url}/set" in refused.err
    assert vernier_here("report", str(run)).code == 0
    assert locked.hits == hits
    assert vernier_here("eval", str(run), "--data", f"{locked.url}/set").code == 0
    assert vernier_here("eval", str(run)).code == 0, "typed once, and remembered"


def test_a_run_of_an_earlier_version_that_recorded_a_password_is_shown_without_it(
    vernier_here: Callable[..., Done], locked: Server, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    train = ["train", *TINY, "--train-only", "--max-steps", "1", "--out", str(out)]
    assert vernier_here(*train, "--data", _typed(locked)).code == 0
    run = only_run(out)
    for file in (*run.glob("*.json*"), *run.glob("checkpoints/*/state.json")):
        file.write_text(file.read_text().replace(f"{locked.url}/set", _typed(locked)))
    for manifest in run.glob("checkpoints/*/manifest.json"):
        state, tree = manifest.with_name("state.json").read_bytes(), json.loads(manifest.read_text())
        tree["files"]["state.json"] = {"bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
        manifest.write_text(json.dumps(tree))
    assert _leaks(run)
    page = vernier_here("report", str(run), "--out", str(tmp_path / "page.html"))
    assert page.code == 0
    assert PASSWORD not in (tmp_path / "page.html").read_text()
    refused = vernier_here("train", "--config", str(run / "config.json"), "--out", str(tmp_path / "x"))
    assert refused.code == 2
    assert "has a password or token in it" in refused.err
    assert PASSWORD not in refused.err
    resumed = vernier_here(*train, "--data", _typed(locked), "--resume", "auto")
    assert resumed.code == 0, resumed.err


def test_a_file_of_settings_with_a_password_is_refused(
    vernier_here: Callable[..., Done], locked: Server, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(f'[data]\nsource = "{_typed(locked)}"\n')
    refused = vernier_here("train", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "x"))
    assert refused.code == 2
    assert "has a password or token in it" in refused.err
    assert PASSWORD not in refused.err
