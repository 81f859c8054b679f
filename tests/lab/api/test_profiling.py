"""Profiles from Python."""

from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.refusals import names_given
from vernier.store import RunDir

SMALL: dict[str, Any] = {
    "model": "resnet8-small",
    "data": "synthetic",
    "batch": 4,
    "range": "2:3",
    "quiet": True,
    "settings": {"model.width": 8, "data.image_px": 32, "machine.threads": 1},
}


@pytest.mark.parametrize("call", [v.profile_train, v.profile_infer])
def test_a_profile_is_a_run_with_its_summary(call: Any, tmp_path: Path) -> None:
    profile = call(out=tmp_path / "runs", **SMALL)
    assert Path(profile) == profile.path
    assert RunDir.is_run(profile.path)
    assert profile.summary.steps == (2, 3)
    assert {path.name for path in (profile.path / "traces").iterdir()} == set(profile.summary.files)
    assert sum(profile.summary.where_the_time_goes.share.values()) == pytest.approx(1.0)
    assert "forward" in str(profile)
    assert ("backward" in profile.summary.where_the_time_goes.share) == (call is v.profile_train)


def test_what_was_chosen_is_noted_in_the_words_of_python(tmp_path: Path) -> None:
    options = {name: value for name, value in SMALL.items() if name != "batch"}
    notes = v.profile_infer(out=tmp_path / "runs", **options).notes
    assert notes
    assert not any("--" in note or "\u27e6" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"range": "5:2"}, "range"),
        ({"range": "x"}, "range"),
        ({"batch": 0}, "batch"),
        ({"mode": "fast"}, "mode"),
        ({"settings": {"machine.threads": 0}}, "machine.threads"),
    ],
)
def test_what_cannot_be_profiled_is_refused(options: dict[str, Any], given: str, tmp_path: Path) -> None:
    with pytest.raises(v.ConfigError) as refused:
        v.profile_train(**{**SMALL, "out": tmp_path / "runs", **options})
    assert names_given(refused.value) == given
    assert not (tmp_path / "runs").exists()
