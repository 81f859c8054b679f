"""`vernier train` as it is typed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.refusals import config_error_of

Vernier = Callable[..., Done]


# -------------------------------------------------------------------------------------------------------------- train


def test_a_precision_that_the_device_does_not_have_is_refused(vernier_here: Vernier, tmp_path: Path) -> None:
    """Elsewhere bf16 on a device that was not listed ran fp32 without a word."""
    done = vernier_here("train", "--precision", "tf32", "--device", "cpu", "--out", str(tmp_path), "--max-steps", "1")
    assert done.code == 2
    assert "tf32" in done.err
    assert "--precision fp32" in done.err


def test_json_has_the_run_its_status_and_the_summary(tiny: list[str], vernier_here: Vernier) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "2", "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert document["status"] == "finished"
    assert Path(document["run"]).is_dir()
    assert document["result"]["samples"] == 50
    assert {"step", "epoch", "best", "agreement", "spent_s", "bad_images", "profile", "compilation"} <= set(document)
    assert document["training"]["images_per_s_total"] > 0


def test_a_recipe_and_a_configuration_cannot_both_be_given() -> None:
    assert config_error_of("train", "shapes-quick", "--config", "x.json").given == {"config": "x.json"}


@pytest.mark.parametrize("flag", ["--batch", "--batch-size", "--device-batch"])
def test_a_batch_that_could_mean_two_things_is_refused(vernier_here: Vernier, tmp_path: Path, flag: str) -> None:
    done = vernier_here("train", flag, "64", "--procs", "2", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    for part in (f"{flag} could mean", "--global-batch N", "--set machine.process_batch=N"):
        assert part in done.err
    assert not (tmp_path / "runs").exists()


def test_explain_prints_what_a_run_would_do_and_leaves_nothing(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path
) -> None:
    done = vernier_here("train", *tiny, "--dry-run", "--json", "--workers", "0")
    assert done.code == 0, done.err
    assert (done.json()["train_images"], done.json()["derived"]["process_batch"]) == (160, 16)
    assert vernier_here("train", *tiny, "--explain").code == 0
    assert not (tmp_path / "runs").exists()


def test_logs_of_nvidia_follow_the_result(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    log = tmp_path / "raport.json"
    done = vernier_here("train", *tiny, "--max-steps", "2", "--train-only", "--raport-file", str(log))
    assert done.code == 0, done.err
    assert log.is_file()
    assert f"written    {log}" in done.err
    again = vernier_here("train", *tiny, "--max-steps", "2", "--raport", str(log), "--resume", "never")
    assert again.code == 2, "nothing is overwritten"


def test_a_run_that_a_time_limit_stops_says_so(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    done = vernier_here("train", *tiny, "--max-time", "1s", "--epochs", "500", "--dllogger", str(log), "--json")
    assert (done.code, done.json()["status"]) == (75, "stopped")
    assert "--dllogger: written when the run is finished" in done.err
    assert not log.exists()


def test_without_checkpoints_a_training_leaves_results_and_no_weights(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path
) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "3", "--no-checkpoints", "--json")
    assert done.code == 0, done.err
    run = Path(done.json()["run"])
    assert list((run / "checkpoints").iterdir()) == []
    assert done.json()["result"]["samples"] == 50
    assert (run / "events.jsonl").read_text().count('"kind": "checkpoint"') == 0
    refused = vernier_here("eval", str(run))
    assert refused.code == 2
    assert "Checkpoints by step: none" in refused.err


def test_the_folder_of_one_run_is_evaluated_by_its_name(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    done = vernier_here("eval", str(tmp_path / "runs"), "--json")
    assert done.code == 0, done.err
    assert done.json()["samples"] == 50
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only", "--resume", "never").code == 0
    refused = vernier_here("eval", str(tmp_path / "runs"))
    assert refused.code == 2
    assert "It holds 2 runs, the newest is" in refused.err
