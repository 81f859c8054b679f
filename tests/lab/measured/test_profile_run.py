from pathlib import Path

from tests.tiny_training import tiny_config
from vernier.lab.measured.profile_run import profile_load
from vernier.measure.profiles import StepRange


def test_a_profile_is_a_run_with_its_traces_and_summary(shapes: Path, tmp_path: Path) -> None:
    run, summary = profile_load(tiny_config(shapes), StepRange(2, 3), infer=True, out=tmp_path)
    assert summary.steps == (2, 3)
    assert set(summary.where_the_time_goes.seconds) >= {"data", "copy", "forward"}
    assert run.status().status == "finished"
    assert sorted(p.name for p in run.traces().glob("profile.*")) == ["profile.rank0.json"]
