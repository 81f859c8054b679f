"""`vernier tune` as it is typed: a real search with tiny bounds, its file in use, and refusals before anything runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Done
from vernier.api import benchmarks
from vernier.config import read_machine_file
from vernier.measure.tuning import racing, search

Vernier = Callable[..., Done]
SMALL = [a for a in TINY if a not in ("--global-batch", "16")]


@pytest.mark.slow
def test_a_search_writes_a_file_that_commands_use(
    vernier_here: Vernier, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "order_of", lambda _: ("channels_last", "mode"))
    monkeypatch.setattr(search, "LOOKS", (3,))
    monkeypatch.setattr(racing, "LOOKS", (3,))
    out = tmp_path / "machine.toml"
    words = ("tune", "--data", str(shapes), *SMALL, "--batch", "4", "--minutes", "6", "--set", "machine.mode=eager")
    done = vernier_here(*words, "--out", str(out), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert document["file"] == str(out)
    assert document["work"] == "train"
    assert not document["stopped"]
    layout, mode = document["settings"]
    assert layout["values"][0]["rates"]
    assert len(layout["values"][0]["rates"]) == len(layout["rates"])
    assert mode["left_out"] == "given, so it stays"
    file = read_machine_file(out)
    assert file.settings == document["machine"]
    assert file.settings["mode"] == "eager"
    assert file.tuned is not None
    assert file.tuned.work == "train"

    done = vernier_here("train", "--data", str(shapes), *TINY, "--machine", str(out), "--max-steps", "1", "--explain")
    assert done.code == 0
    assert f"settings of the machine file {out}" in done.out
    done = vernier_here("eval", str(tmp_path), "--machine", str(out))
    assert done.code == 2
    assert "was tuned for training" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tune", "resnet5000"), "There is no recipe or network 'resnet5000'"),
        (("tune", "--minutes", "0"), "--minutes 0.0 is no time to measure in"),
        (("tune", "--out", "nowhere/machine.toml"), "there is no folder nowhere"),
        (("tune", "--out", "machine.txt"), "ends in .toml"),
        (("tune", "--out", "there.toml"), "--overwrite to replace it"),
        (("tune", "--overwrite", "--out", "folder.toml"), "is a folder"),
        (("tune", "--batch", "0"), "whole number of 1 or more"),
        (("tune", "--device", "cpu", "--set", "machine.reduction=exact", "--set", "machine.mode=compile"), "exact"),
        (("train", "--machine", "none.toml"), "Cannot read the machine file none.toml"),
        (("bench", "infer", "--machine", "there.toml"), "tuned for training, and this is inference"),
        (("predict", "run", "a.jpg", "--machine", "none.toml"), "Cannot read the machine file"),
        (("profile", "--infer", "--machine", "there.toml"), "tuned for training"),
        (("finetune", "photos", "--machine", "none.toml"), "Cannot read the machine file"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("[machine]\nthreads = 1\n[tuned]\nwork = 'train'\n")
    Path("folder.toml").mkdir()
    done = vernier_here(*words)
    assert done.code == 2
    assert message in done.err


def test_no_permission_is_refused_before_anything_is_measured(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.os, "access", lambda *_: False)  # tests may run as root, who may write anywhere
    done = vernier_here("tune", "--out", str(tmp_path / "machine.toml"))
    assert done.code == 2
    assert "no permission" in done.err


def test_ctrl_c_writes_nothing_and_says_so(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: search.Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "run", interrupted)
    out = tmp_path / "machine.toml"
    done = vernier_here("tune", "--out", str(out))
    assert done.code == 130
    assert "nothing was written" in done.err
    assert not out.exists()
