"""Benchmarks, profiles and studies as a person starts them."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Done, command, only_run
from vernier.lab.records.bench import StepResult, read_bench
from vernier.store import RunDir

SMALL = [a for a in TINY if a not in ("--global-batch", "16")]


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_a_row_and_not_a_crash(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    flags = "--data synthetic --model resnet18 --batch 1,1024 --steps 2 --repeats 1 --memory-limit 3 --json"
    settings = "--set data.image_px=224 --set machine.threads=1 --set machine.telemetry_hz=50"
    raport = tmp_path / "benchmark.json"
    done = vernier_here("bench", "train", *flags.split(), *settings.split(), "--out", str(out), "--raport", str(raport))
    assert done.code == 0, done.err
    tree = json.loads(raport.read_text())
    assert (tree["iter"]["it"], tree["run"]["batch_size"], tree["run"]["training_only"]) == ([[1, 2]], 1, True)
    assert [len(times) for times in tree["iter"]["train.data_time"]] == [2]
    small, large = done.json()["rows"]
    assert (small["status"], large["status"]) == ("ok", "out-of-memory")
    assert small["images_per_s_total"]["value"] > 0
    run = RunDir.open(only_run(out))
    rounds = read_bench(run.path).rounds
    assert len(rounds) == 2
    assert [len(r.result.raw.step_s) for r in rounds if isinstance(r.result, StepResult)] == [2]
    assert "out-of-memory" in (run.path / "bench.md").read_text()
    assert run.status().status == "finished"


@pytest.mark.slow
def test_scaling_over_processes_counts_images_once_and_names_communication(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started in a folder whose random.py no process may take for Python's own."""
    (tmp_path / "random.py").write_text("raise SystemExit('the random.py of the folder was imported')")
    monkeypatch.chdir(tmp_path)
    flags = "--batch 4 --procs 1x1,2x1 --apart --steps 4 --repeats 1 --max-seconds 60 --json"
    done = vernier_here("bench", "scaling", "--data", str(shapes), *SMALL, *flags.split(), "--out", str(tmp_path))
    assert done.code == 0, done.err
    one, two, apart = done.json()["rows"]
    assert (one["devices"], two["devices"]) == (1, 2)
    assert two["images_per_s_total"]["value"] == pytest.approx(8 / two["step_s"]["mean"])
    assert two["images_per_s_per_device"]["value"] == pytest.approx(4 / two["step_s"]["mean"])
    assert "communication" in two["phases"]["seconds"]
    assert "communication" not in one["phases"]["seconds"]
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert apart["exchange"] == "none"
    assert "communication" not in apart["phases"]["seconds"]
    assert two["of_apart"] == pytest.approx(apart["step_s"]["mean"] / two["step_s"]["mean"])


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_says_what_was_not(tiny: list[str], tmp_path: Path) -> None:
    flags = "--data synthetic --batch 2,4 --steps 3 --repeats 50"
    arguments = command("bench", "train", *SMALL, *flags.split(), "--out", str(tmp_path / "o"))
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline_s = time.monotonic() + 240
        while not list(tmp_path.glob("o/*/bench.json")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s, "no result in 240 s"
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()  # or it would keep measuring beside the other tests
    assert process.returncode == 130, errors
    assert "100 processes (2 configurations x 50 repeats), 3 steps each" in errors
    assert "INTERRUPTED after" in out
    run = RunDir.open(only_run(tmp_path / "o"))
    assert run.status().status == "stopped"
    assert run.read_environment()["host"]
    assert any(r.status == "ok" for r in read_bench(run.path).rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "train", "--batch", "8,x"], "--batch"),
        (["bench", "train", "--batch", "0"], "1 or more"),
        (["bench", "train", "--precision-target", "200%"], "--precision-target 200%"),
        (["bench", "train", "--precision", "fp31"], "Did you mean fp32"),
        (["bench", "train", "--repeats", "0"], "out of range"),
        (["bench", "train", "no-such-recipe"], "no-such-recipe"),
    ],
)
def test_wrong_input_is_explained(
    vernier_here: Callable[..., Done], arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vernier_here(*arguments)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slow
def test_a_refused_benchmark_leaves_nothing_behind(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here(
        "bench", "train", "--data", str(tmp_path / "none"), "--repeats", "1", "--out", str(tmp_path / "runs")
    )
    assert done.code == 2
    assert "does not exist" in done.err
    assert not list(tmp_path.glob("runs/*"))


def test_profiled_steps_of_a_resumed_training_are_counted_from_its_beginning(
    vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path
) -> None:
    first = vernier_here("train", *tiny, "--max-steps", "6", "--train-only")
    assert first.code == 0, first.err
    run = only_run(tmp_path / "runs")
    late = vernier_here(
        "train", *tiny, "--max-steps", "12", "--train-only", "--resume", "auto", "--profile-steps", "5:7"
    )
    assert late.code == 2
    assert "resumes at step 7" in late.err
    done = vernier_here(
        "train", *tiny, "--max-steps", "12", "--train-only", "--resume", "auto", "--profile-steps", "8:9", "--json"
    )
    assert done.code == 0, done.err
    assert done.json()["profile"]["steps"] == [8, 9]
    iterations = (run / "traces" / "iterations.rank0.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in iterations] == ["7", "8", "9", "10", "11", "12"]
    assert [line.split(",")[0] for line in iterations if line.endswith("yes")] == ["8", "9"]
