"""`vernier profile` as it is typed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Done
from vernier.engine.measured import profile_run
from vernier.records.profile import KernelTime, PhaseTimes, ProfileSummary
from vernier.store import RunDir

Vernier = Callable[..., Done]
SMALL = [a for a in TINY if a not in ("--global-batch", "16")]


def test_a_profile_leaves_its_files(vernier_here: Vernier, shapes: Path, tmp_path: Path) -> None:
    done = vernier_here(
        "profile", "--data", str(shapes), *SMALL, "--batch", "4", "--steps", "2:3", "--out", str(tmp_path), "--json"
    )
    assert done.code == 0, done.err
    document = done.json()
    shares = document["where_the_time_goes"]["share"]
    assert set(shares) == {"data", "copy", "forward", "backward", "optimizer", "idle"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert document["overhead"]["n_others"] >= 5
    files = {"trace.rank0.json.gz", "calls.rank0.csv", "kernels.rank0.csv", "memory.rank0.csv", "iterations.rank0.csv"}
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
    monkeypatch.setattr(profile_run, "profile_load", lambda *a, **k: (RunDir(tmp_path), summary))
    done = vernier_here("profile", "--data", "synthetic", "--steps", "2:3")
    assert done.code == 0, done.err
    for text in ("aten::mm", "0.25", "(steps 2 to 3): forward 100.0 %", "overhead of profiling: unknown", "a.csv"):
        assert text in done.out


def test_a_range_of_steps_that_is_none_is_refused(vernier_here: Vernier, tmp_path: Path) -> None:
    done = vernier_here("profile", "--steps", "5:2", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert "1 <= A <= B" in done.err
    assert not (tmp_path / "runs").exists()
