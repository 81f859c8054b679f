"""`vernier train` as it is typed."""

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Done

Vernier = Callable[..., Done]


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


def test_a_recipe_and_a_configuration_cannot_both_be_given(vernier_here: Vernier) -> None:
    done = vernier_here("train", "shapes-quick", "--config", "x.json")
    assert done.code == 2
    assert "not both" in done.err


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
