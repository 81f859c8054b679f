"""Comparisons that gave a verdict on different things, on copies, or on one run each."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.report.bench_results import step_result, write_bench
from tests.report.run_dirs import step_times, write_run
from vernier.config import Config, Data, Machine, Model, Recipe, to_dict
from vernier.lab.records.bench import BenchRequest, BenchResult, FailedRow, Round

Runner = Callable[..., Done]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "0.1"


def _bench(
    out: Path, what: str, step_s: list[float], *, model: str = "resnet50", px: int = 224, batch: int = 32
) -> Path:
    """A benchmark of one configuration, measured once."""
    recipe = Recipe(name="bench", global_batch=batch, model=Model(name=model), data=Data(image_px=px))
    config = to_dict(Config(recipe=recipe, machine=Machine(device="cpu")))
    result = BenchResult(
        asked=BenchRequest(what=what, config=config),  # type: ignore[arg-type]
        rows=(FailedRow(configuration="only", batch=batch, status="ok"),),
        rounds=(
            Round(configuration="only", round=0, order=0, result=step_result(tuple(step_s), images_per_step=batch)),
        ),
    )
    return write_bench(out, result)


def test_a_run_and_a_bench_of_another_network_are_not_compared(tmp_path: Path, vernier_here: Runner) -> None:
    """A training of ResNet-8 against a benchmark of ResNet-50 inference gave "B is slower (surely different)"."""
    run = write_run(tmp_path, "a", step_times(1), model__name="resnet8-small", data__image_px=64)
    bench = _bench(tmp_path / "b", "infer", step_times(2, mean=5.0))
    done = vernier_here("compare", str(run), str(bench))
    assert done.code == 2
    assert "A trains resnet8-small at 64 px" in done.err
    assert "B infers resnet50 at 224 px" in done.err
    assert "--different-work" in done.err
    told = vernier_here("compare", str(run), str(bench), "--different-work")
    assert told.code == 0
    assert told.out.startswith("NOT THE SAME WORK: A trains resnet8-small at 64 px")


def test_a_run_and_a_bench_of_the_same_work_line_up(tmp_path: Path, vernier_here: Runner) -> None:
    """What differed was "recipe: {'name': 'shapes-quick', ... -> None": the two had their settings in other places."""
    run = write_run(tmp_path, "a", step_times(1), model__name="resnet18", data__image_px=64)
    bench = _bench(tmp_path / "b", "train", step_times(2), model="resnet18", px=64)
    done = vernier_here("compare", str(run), str(bench))
    assert done.code == 0, done.err
    assert "train resnet18" in done.out
    assert "None in B" not in done.out
    assert "{'" not in done.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__width": 32}, "resnet50, width 32"),
        ({"data__image_px": 64}, "at 64 px"),
        ({"batch": 64}, "batch 64"),
    ],
)
def test_different_work_is_refused(tmp_path: Path, vernier_here: Runner, changes: dict[str, int], words: str) -> None:
    """Another width, image size or batch was compared as if it were the same thing."""
    a = write_run(tmp_path, "a", step_times(1))
    b = write_run(tmp_path, "b", step_times(2), **changes)  # type: ignore[arg-type]
    done = vernier_here("compare", str(a), str(b))
    assert done.code == 2
    assert words in done.err


def test_another_precision_is_allowed_and_shown_in_words(tmp_path: Path, vernier_here: Runner) -> None:
    """What a comparison is about is listed first, in words."""
    a = write_run(tmp_path, "a", step_times(1))
    b = write_run(tmp_path, "b", step_times(2), machine__precision="bf16")
    done = vernier_here("compare", str(a), str(b))
    assert done.code == 0, done.err
    assert "differs in precision: fp32 in A, bf16 in B" in done.out


def test_one_run_per_side_is_never_certain(tmp_path: Path, vernier_here: Runner) -> None:
    """One run each was "certainly different" and ended with exit code 1, although runs of the same thing differ too."""
    a, b = write_run(tmp_path, "a", step_times(1)), write_run(tmp_path, "b", step_times(2, mean=0.2))
    done = vernier_here("compare", str(a), str(b))
    assert done.code == 0
    assert "verdict: cannot tell from one run each" in done.out
    assert "certainly" not in done.out
    assert "95 % interval within these two runs" in done.out
    insisted = vernier_here("compare", str(a), str(b), "--single-runs", "--other-times")
    assert insisted.code == 1
    assert "how runs differ is ignored" in insisted.out


def test_copies_of_one_run_count_once(tmp_path: Path, vernier_here: Runner) -> None:
    """Copying a run made the interval narrower and the verdict certain."""
    a, b = write_run(tmp_path, "a", step_times(1)), write_run(tmp_path, "b", step_times(2, mean=0.2))
    copies = [tmp_path / "copies" / name for name in ("one", "two", "three")]
    for path in copies:
        shutil.copytree(b, path)
    done = vernier_here("compare", str(a), ",".join(map(str, copies)), "--json")
    assert done.code == 0
    assert done.json()["comparison"]["runs"] == [1, 1]
    notes = done.json()["notes"]
    assert f"{copies[1]} is a copy of {copies[0]}: in B it counts once" in notes


def test_a_run_compared_with_itself_is_said_in_words(tmp_path: Path, vernier_here: Runner) -> None:
    """The note read "the same on both sides: (PosixPath('...'), None, 4931275059499093291)"."""
    run = write_run(tmp_path, "a", step_times(1))
    moved = shutil.copytree(run, tmp_path / "moved")
    for other in (run, moved):
        done = vernier_here("compare", str(run), str(other))
        assert done.code == 0
        assert "note: A and B are the same measurement: there is nothing to compare" in done.out
        assert "PosixPath" not in done.out


def test_old_runs_are_compared_by_what_their_configuration_says(vernier_here: Runner) -> None:
    """Runs of the version before have no record of what ran; their configuration has it."""
    done = vernier_here("compare", str(GOLDEN / "classifier"), str(GOLDEN / "detector"))
    assert done.code == 2
    assert "A trains resnet8-small, width 8 at 32 px" in done.err
    assert "B trains ssd-small" in done.err


def test_a_comparison_of_two_seeds_lists_the_seed_and_the_accuracy(vernier_here: Runner, tmp_path: Path) -> None:
    """It listed the interval of printing, and neither the seed nor the accuracy."""
    a = write_run(tmp_path, "a", step_times(1), seed=1)
    b = write_run(tmp_path, "b", step_times(2), seed=2, limits__log_every_steps=20)
    out = vernier_here("compare", str(a), str(b)).out
    assert "differs in setting recipe.seed: 1 in A, 2 in B" in out
    assert "log_every_steps" not in out
    (line,) = [line for line in out.splitlines() if line.startswith("top1: ")]
    assert line.endswith("(last evaluation)")
    both = vernier_here("compare", f"{a},{b}", str(b), "--json").json()
    assert not any("seed" in note for note in both["not_alike"])
