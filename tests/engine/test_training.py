"""Training in this process, on real JPEGs: what it records, when it evaluates and saves, when it refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import only_run
from vernier.config import (
    Augment,
    Checkpoint,
    Config,
    Data,
    Ema,
    Eval,
    Limits,
    Loss,
    Machine,
    Model,
    Optim,
    Recipe,
    Schedule,
)
from vernier.engine.inference.evaluate import evaluate_trained
from vernier.engine.inference.trained import load_trained
from vernier.engine.training.session import Outcome, train
from vernier.errors import ConfigError, RunFailed
from vernier.store import RunDir


def tiny_config(shapes: Path, **recipe: Any) -> Config:
    return Config(
        recipe=Recipe(
            **{
                "name": "tiny", "global_batch": 16, "model": Model(name="resnet8-small", width=8),
                "data": Data(source=str(shapes), image_px=32, eval_px=32, eval_short_side_px=32), "augment": Augment(crop="pad"),
                "optim": Optim(lr=0.05), "schedule": Schedule(epochs=2.0), **recipe,
            }
        ),
        machine=Machine(threads=1, eval_batch=16),
    )  # fmt: skip


def run(config: Config, out: Path) -> Outcome:
    return train(config, out, None, [])


def test_a_run_leaves_a_directory_that_tells_everything(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, ema=Ema(decay=0.9)), tmp_path)
    directory = RunDir.open(only_run(tmp_path))
    assert outcome.status == directory.read_status()["status"] == "finished"
    assert {p.name for p in directory.path.iterdir()} == {
        "config.json", "environment.json", "events.jsonl", "telemetry.jsonl", "run.json", "run.lock", "checkpoints",
        "predictions",
    }  # fmt: skip
    files = {p.name for p in directory.checkpoints()[-1].path.iterdir()}
    assert files == {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json", "manifest.json"}
    events = directory.read_events()
    assert [e["kind"] for e in events if e["kind"] in ("start", "eval", "end", "epoch")] == [
        "start",
        "epoch",
        "eval",
        "epoch",
        "eval",
        "end",
    ]
    steps = [e for e in events if e["kind"] == "step"]
    assert sum(e["samples"] for e in steps) == 20 * 16
    assert sum(len(e["step_s"]) for e in steps) == 20
    assert outcome.summary["result"]["samples"] == 50
    assert outcome.summary["training"]["steps_measured"] + outcome.summary["training"]["warmup_steps_excluded"] == 20


def test_it_learns(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, schedule=Schedule(epochs=12.0)), tmp_path)
    losses = [e["loss"] for e in outcome.run.read_events() if e["kind"] == "step"]
    assert losses[-1] < losses[0] - 0.2


def test_evaluating_the_run_gives_the_result_it_reported(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, ema=Ema(decay=0.5)), tmp_path)
    reported = outcome.summary["result"]
    for path in (outcome.run.path, outcome.run.checkpoints()[-1].path):
        again = evaluate_trained(load_trained(path), None, None, [])
        assert {k: again[k] for k in ("top1", "top5", "loss", "samples")} == {
            k: reported[k] for k in ("top1", "top5", "loss", "samples")
        }
        assert again["averaged"]
    raw = evaluate_trained(load_trained(outcome.run.path, averaged=False), None, None, [])
    assert raw["loss"] != reported["loss"]


def test_accumulation_gives_the_same_gradient_without_batch_norm_effects(shapes: Path, tmp_path: Path) -> None:
    """Batch norm sees smaller batches, so only the bookkeeping is compared: the same samples, the same number of updates."""
    config = tiny_config(shapes)
    split = replace(config, machine=replace(config.machine, accumulation=4))
    events = [run(c, tmp_path / str(i)).run.read_events() for i, c in enumerate((config, split))]
    starts = [next(e for e in ev if e["kind"] == "start") for ev in events]
    assert [s["process_batch"] for s in starts] == [16, 4]
    assert [s["total_steps"] for s in starts] == [20, 20]


def test_max_steps_cuts_the_run_but_not_the_schedule(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(kind="linear", epochs=2.0))
    outcome = run(replace(config, limits=Limits(max_steps=5, log_every_steps=1, max_eval_steps=2)), tmp_path)
    rates = [e["lr"] for e in outcome.run.read_events() if e["kind"] == "step"]
    assert rates == pytest.approx([0.05 * (1 - s / 20) for s in range(5)])
    assert outcome.summary["step"] == 5
    assert outcome.summary["result"]["samples"] == 32
    assert outcome.summary["result"]["exact"] is False


def test_train_only_never_evaluates(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, eval=Eval(every_epochs=0)), tmp_path)
    assert outcome.summary["result"] is None
    assert not [e for e in outcome.run.read_events() if e["kind"] == "eval"]
    assert outcome.run.newest_checkpoint() is not None


def test_evaluation_every_n_epochs_and_at_the_end(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, schedule=Schedule(epochs=5.0), eval=Eval(every_epochs=2)), tmp_path)
    assert [e["step"] for e in outcome.run.read_events() if e["kind"] == "eval"] == [20, 40, 50]


def test_stops_at_the_target(shapes: Path, tmp_path: Path) -> None:
    outcome = run(tiny_config(shapes, schedule=Schedule(epochs=50.0), eval=Eval(target_top1=0.0)), tmp_path)
    assert outcome.summary["reached_target"]
    assert outcome.summary["step"] == 10


def test_checkpoint_policy(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=4.0), eval=Eval(every_epochs=0))
    policy = Checkpoint(every_epochs=0, every_steps=5, keep_last=2, keep_every_epochs=2, keep_best=False)
    outcome = run(replace(config, checkpoint=policy), tmp_path)
    assert [c.step for c in outcome.run.checkpoints()] == [20, 35, 40]


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_last_good_checkpoint(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes, optim=Optim(lr=1e30), schedule=Schedule(kind="step", epochs=3.0, milestones=()))
    config = replace(config, checkpoint=Checkpoint(every_steps=1))
    with pytest.raises(RunFailed, match=r"became .*at step \d+ .*Try a lower optim.lr"):
        run(config, tmp_path)
    directory = RunDir.open(only_run(tmp_path))
    assert directory.read_status()["status"] == "failed"
    for kept in directory.checkpoints():
        assert kept.problems() == []
        assert all(torch.isfinite(t).all() for t in load_trained(kept.path).model.state_dict().values())


def test_an_evaluation_that_is_no_number_ends_the_run_with_a_reason(shapes: Path, tmp_path: Path) -> None:
    """One enormous step: its loss was finite and so are the weights, but not what they compute."""
    config = tiny_config(shapes, optim=Optim(lr=1e12), schedule=Schedule(kind="constant", epochs=1.0))
    with pytest.raises(RunFailed, match=r"The evaluation's loss became (nan|inf)"):
        train(replace(config, limits=Limits(max_steps=1)), tmp_path, None, [])
    assert only_run(tmp_path).joinpath("run.json").read_text().count('"failed"') == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": Model(name="resnet8-small", num_classes=7)}, "model.num_classes = 7, but the data has 10 classes"),
        ({"model": Model(name="resnet9000")}, "resnet9000"),
        ({"global_batch": 4096}, "more than the 160 training images"),
        ({"data": Data(source="/nowhere")}, "does not exist"),
        ({"data": Data(source="")}, "--data PATH"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    shapes: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tiny_config(shapes, **change), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_channels_that_do_not_fit_the_statistics_are_refused(shapes: Path, tmp_path: Path) -> None:
    config = tiny_config(shapes)
    data = replace(config.recipe.data, mean=(0.5,), std=(0.5,))
    with pytest.raises(ConfigError, match=r"3 channel\(s\)"):
        run(replace(config, recipe=replace(config.recipe, data=data)), tmp_path / "runs")


def test_the_same_seed_gives_the_same_weights_and_another_does_not(shapes: Path, tmp_path: Path) -> None:
    def weights(seed: int, name: str, workers: int) -> bytes:
        config = tiny_config(shapes, seed=seed, schedule=Schedule(epochs=1.0), loss=Loss(label_smoothing=0.1))
        config = replace(config, machine=replace(config.machine, workers=workers))
        return (run(config, tmp_path / name).run.checkpoints()[-1].path / "model.safetensors").read_bytes()

    assert weights(1, "a", 1) == weights(1, "b", 3)
    assert weights(1, "c", 1) != weights(2, "d", 1)


@pytest.fixture
def _determinism_put_back() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_determinism_put_back")
def test_deterministic_runs_repeat_bit_for_bit_and_refuse_what_does_not(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(shapes, schedule=Schedule(epochs=0.5))
    config = replace(config, machine=replace(config.machine, deterministic=True))
    states = [load_trained(run(config, tmp_path / name).run.path).model.state_dict() for name in "ab"]
    assert torch.are_deterministic_algorithms_enabled()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])

    def unsure(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            "frobnicate does not have a deterministic implementation, but you set it. You can turn it off"
        )

    monkeypatch.setattr("vernier.engine.training.step.TrainStep.__call__", unsure)
    with pytest.raises(RunFailed, match="--deterministic: frobnicate"):
        run(config, tmp_path / "c")


def test_a_traced_run_learns_and_evaluates_like_an_eager_one(shapes: Path, tmp_path: Path) -> None:
    """Averaged weights included, which a traced network borrows for an evaluation."""
    config = tiny_config(shapes, ema=Ema(decay=0.9), schedule=Schedule(epochs=1.0))
    traced = replace(config, machine=replace(config.machine, mode="trace"))
    eager, other = run(config, tmp_path / "eager"), run(traced, tmp_path / "trace")
    assert other.summary["result"]["loss"] == pytest.approx(eager.summary["result"]["loss"], rel=1e-4)
    assert other.summary["result"]["averaged"]
    assert other.summary["compilation"]["graphs"] == 2
    assert eager.summary["compilation"]["graphs"] == 0
