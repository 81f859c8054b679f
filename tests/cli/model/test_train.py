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
