"""`vernier tune` and `vernier profile` as they are typed: small real ones, and refusals before anything runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Done
from tests.refusals import config_error_of, names_given, what_works
from vernier.config import read_machine_file
from vernier.lab.api import profiling, tuning
from vernier.lab.launcher import Ended
from vernier.lab.records.bench import ProfileResult
from vernier.lab.tuning import comparing, search
from vernier.records.codec import encode
from vernier.records.profile import KernelTime, PhaseTimes, ProfileSummary

Vernier = Callable[..., Done]
SMALL = [a for a in TINY if a not in ("--global-batch", "16")]


@pytest.mark.slow
def test_a_search_writes_a_file_that_commands_use(
    vernier_here: Vernier, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "order_of", lambda _: ("channels_last", "mode"))
    monkeypatch.setattr(search, "LOOKS", (3,))
    monkeypatch.setattr(comparing, "LOOKS", (3,))
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
    assert layout["rates"]
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
    assert "vernier tune infer" in done.err


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("tune --minutes 0", "time", ""),
        ("tune --time 10", "time", ""),
        ("tune --out nowhere/machine.toml", "out", ""),
        ("tune --out machine.txt", "out", ""),
        ("tune --out there.toml", "out", "overwrite=true"),
        ("tune --overwrite --out folder.toml", "out", ""),
        ("tune infer --batch 0", "batch", ""),
        (
            "tune train --device cpu --set machine.reduction=exact --set machine.mode=compile",
            "machine.mode machine.reduction",
            "machine.mode=eager machine.reduction=ddp",
        ),
        ("bench infer --machine there.toml", "machine", "tune.infer"),
        ("profile infer --machine there.toml", "machine", "tune.infer"),
        ("profile --mode fast", "mode", ""),
        ("profile --batch 0", "batch", ""),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, given: str, works: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("[machine]\nthreads = 1\n[tuned]\nwork = 'train'\n")
    Path("folder.toml").mkdir()
    error = config_error_of(*words.split())
    assert (names_given(error), what_works(error)) == (given, works)


@pytest.mark.parametrize(
    "words",
    [
        "tune resnet5000",
        "train --machine none.toml",
        "predict run a.jpg --machine none.toml",
        "finetune photos --machine none.toml",
    ],
)
def test_what_is_not_there_is_named(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vernier_here(*words.split())
    assert done.code == 2
    assert words.split()[-1] in done.err


def test_old_ways_to_say_inference_lead_to_the_new_command(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("[machine]\nthreads = 1\n[tuned]\nwork = 'train'\n")
    done = vernier_here("profile", "--infer", "--machine", "there.toml")
    assert done.code == 2
    assert "profile infer" in done.err


def test_no_permission_is_refused_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.os, "access", lambda *_: False)  # tests may run as root, who may write anywhere
    out = str(tmp_path / "machine.toml")
    assert config_error_of("tune", "--out", out).given == {"out": out}


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


# ------------------------------------------------------------------------------------------------------------ profile


def test_a_profile_leaves_its_files(vernier_here: Vernier, shapes: Path, tmp_path: Path) -> None:
    done = vernier_here(
        "profile", "--data", str(shapes), *SMALL, "--batch", "4", "--range", "2:3", "--out", str(tmp_path), "--json"
    )
    assert done.code == 0, done.err
    document = done.json()
    shares = document["where_the_time_goes"]["share"]
    assert set(shares) == {"data", "copy", "forward", "backward", "optimizer", "idle"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert document["overhead"]["n_others"] >= 5
    files = {"trace.rank0.json.gz", "calls.rank0.csv", "kernels.rank0.csv", "iterations.rank0.csv"}
    traces = Path(document["run"]) / "traces"
    assert {p.name for p in traces.iterdir()} == {*files, "profile.rank0.json"} == set(document["files"])


def test_the_terminal_shows_kernels_and_where_the_time_goes(
    vernier_here: Vernier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KernelTime(
        name="aten::mm", device="cpu", calls=6, total_ms=9.0, mean_ms=1.5, min_ms=1.0, max_ms=2.0, share=0.25
    )
    times = PhaseTimes(steps=2, seconds={"forward": 1.0}, share={"forward": 1.0})
    summary = ProfileSummary(method="m", steps=(2, 3), where_the_time_goes=times, top=(kernel,), files=("a.csv",))
    answer = encode(ProfileResult(run=tmp_path, summary=summary))
    monkeypatch.setattr(profiling, "run", lambda *_, **__: Ended(tree=answer, code=0, seconds=1.0, output=""))
    done = vernier_here("profile", "--data", "synthetic", "--range", "2:3")
    assert done.code == 0, done.err
    for text in ("aten::mm", "0.25", "(steps 2 to 3): forward 100.0 %", "overhead of profiling: unknown", "a.csv"):
        assert text in done.out


@pytest.mark.parametrize("steps", ["5:2", "0:2", "x"])
def test_a_range_of_steps_that_is_none_is_refused(vernier_here: Vernier, tmp_path: Path, steps: str) -> None:
    done = vernier_here("profile", "--steps", steps, "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert "--steps" in done.err
    assert not (tmp_path / "runs").exists()
