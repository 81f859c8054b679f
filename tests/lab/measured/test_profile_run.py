from pathlib import Path

import pytest

from tests.tiny_training import tiny_config
from vernier.config import to_dict
from vernier.lab import launcher
from vernier.lab.measured.profile_run import profile_load
from vernier.lab.records.bench import MeasuringProgress, ProfileRequest, ProfileResult
from vernier.store import RunDir


def request(shapes: Path, out: Path, last: int = 3) -> ProfileRequest:
    return ProfileRequest(load="infer", first=2, last=last, out=out, config=to_dict(tiny_config(shapes)))


def test_a_profile_is_a_run_with_its_traces_and_summary(shapes: Path, tmp_path: Path) -> None:
    result = profile_load(request(shapes, tmp_path))
    assert result.summary.steps == (2, 3)
    assert set(result.summary.where_the_time_goes.seconds) >= {"data", "copy", "forward"}
    run = RunDir.open(result.run)
    assert run.status().status == "finished"
    assert sorted(p.name for p in run.traces().glob("profile.*")) == ["profile.rank0.json"]


def test_a_process_profiles_and_says_how_far_it_is(shapes: Path, tmp_path: Path) -> None:
    """`profile` ran in the process of its command, with a protocol and a progress bar of its own."""
    said: list[MeasuringProgress | None] = []
    result = launcher.run(request(shapes, tmp_path), on_progress=said.append).result(ProfileResult, "the profile")
    assert isinstance(result, ProfileResult)
    assert RunDir.open(result.run).status().status == "finished"
    assert "profiling" in {now.phase for now in said if now}


def test_a_profile_that_is_ended_leaves_nothing(shapes: Path, tmp_path: Path) -> None:
    def end(now: MeasuringProgress | None) -> None:
        if now and now.phase == "profiling":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher.run(request(shapes, tmp_path, last=10**6), on_progress=end)
    assert list(tmp_path.iterdir()) == []
