"""What a new user expected of commands, settings files and predictions, and did not get. A test per expectation."""

import codecs
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.conftest import Done, only_run
from vernier.config import Config, load_file
from vernier.data.sources.files import find_images
from vernier.lab.finetuning import phase_times

Runner = Callable[..., Done]


# ------------------------------------------------------------------------------- a plan refuses what training refuses


@pytest.mark.parametrize(
    "words",
    [
        ("--weights", "nofile.pth"),
        ("--weights", "runs"),
        ("--freeze", "layer9"),
        ("--set", "data.mean=[0.5,0.5]"),
        ("--set", "data.mean=[0.5,0.5]", "--set", "data.std=[0.5,0.5]"),
        ("--data", ""),
        ("--device", "nosuch"),
        ("--resume", "nothing"),
    ],
)
def test_explain_refuses_what_training_refuses(
    vernier_here: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A job was queued after a plan without an error, and ended at once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    refusals = [vernier_here("train", *words, *more) for more in (("--explain",), ())]
    assert [done.code for done in refusals] == [2, 2]
    assert refusals[0].err.split(".")[0] == refusals[1].err.split(".")[0]


def test_habana_is_another_name_of_hpu(vernier_here: Runner) -> None:
    plan = vernier_here("train", "--device", "habana", "--explain", "--json").json()
    assert plan["ran"]["device"].startswith("hpu")


def test_an_empty_settings_file_is_an_error(vernier_here: Runner, tmp_path: Path) -> None:
    """It described a ResNet-50 on ImageNet."""
    (tmp_path / "empty.toml").write_text("# nothing yet\n")
    done = vernier_here("train", str(tmp_path / "empty.toml"), "--explain")
    assert done.code == 2
    assert "has no settings" in done.err


def test_an_absurd_plan_has_warnings(vernier_here: Runner) -> None:
    """5,000 days and more memory than the host has were figures among others."""
    warnings = vernier_here("train", "nvidia-resnet50-90e", "--device", "cpu", "--explain", "--json").json()["warnings"]
    assert any("more memory than is free here" in line for line in warnings)
    assert any("at least" in line and "days" in line for line in warnings)


def test_a_plan_shows_what_is_resumed_and_what_is_left(vernier_here: Runner, tiny: list[str], tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "3", "--train-only").code == 0
    run = only_run(tmp_path / "runs")
    more = ("--resume", str(run), "--train-only", "--explain")
    assert f"{run} at step 3: 2 steps are left" in vernier_here("train", *tiny, "--max-steps", "5", *more).out
    assert "nothing is left to train" in vernier_here("train", *tiny, "--max-steps", "3", *more).out
    longer = vernier_here("train", *tiny, "--epochs", "12", *more)
    assert (longer.code, f"extends {run} from step 3" in longer.out) == (0, True), longer.err


# --------------------------------------------------------------------------------------------- settings and their files


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + b"seed = 3\r\n",
        codecs.BOM_UTF16_LE + "seed = 3\r\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "seed = 3\n".encode("utf-16-be"),
    ],
)
def test_a_recipe_that_notepad_saved_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.TOML").write_bytes(content)
    assert load_file(tmp_path / "mine.TOML").recipe.seed == 3


def test_the_case_of_an_ending_does_not_matter(vernier_here: Runner, tmp_path: Path) -> None:
    (tmp_path / "F.TOML").write_text('seed = 3\n[data]\nsource = "shapes"\n')
    assert vernier_here("train", str(tmp_path / "F.TOML"), "--explain").code == 0


def test_the_folder_of_a_run_is_a_configuration(vernier_here: Runner, tiny: list[str], tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only", "--seed", "5").code == 0
    run = only_run(tmp_path / "runs")
    plan = vernier_here("train", "--config", str(run), "--explain", "--json", "--out", str(tmp_path / "new"))
    assert (plan.code, plan.json()["derived"]["process_batch"]) == (0, 16)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("train --seed -1", "vernier: --seed -1 is out of range"),
        ("train --set OPTIM.LR=0.1", "Did you mean optim.lr?"),
        ("train --set loss.class_weights=balanced", "Settings of loss: kind, label_smoothing"),
        ("train --set data.balance=1", "Settings of data: source"),
        ("predict r p.jpg --min-score 30", "must be 0 or more and 1 or less. Did you mean 0.3?"),
        ("predict r https://example.org/cat.jpg", "https://example.org/cat.jpg: addresses are not read."),
        ("predict r 0", "cameras and videos are not read"),
        ("predict r film.mp4", "cameras and videos are not read"),
        ("predict r nothing/*.jpg", "nothing/*.jpg matches no file."),
        ("tune photos", "vernier finetune photos trains on photographs of your own"),
        ("bench infer missing.safetensors", "missing.safetensors does not exist."),
        ("models convnext_tinyy", "Did you mean convnext-tiny?"),
        ("train --model vit_base_patch16_224", "`vernier models` lists all"),
    ],
)
def test_a_message_names_the_way_out(
    vernier_here: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, answer: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    done = vernier_here(*typed.split())
    assert done.code == 2
    assert answer in done.err


@pytest.mark.parametrize("word", ["rm", "clean"])
def test_runs_rm_says_how_a_run_is_removed(word: str, vernier_here: Runner, tmp_path: Path) -> None:
    done = vernier_here("runs", word, str(tmp_path))
    assert (done.code, "rm -r RUN" in done.err) == (2, True)


def test_tensorboard_can_be_named_among_the_trackers(vernier_here: Runner) -> None:
    assert vernier_here("train", "--track", "tensorboard", "--explain").code == 0


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (("--train-only", "--set", "eval.patience=2"), "has no effect"),
        (("--steps", "20", "--max-steps", "10"), "comes first"),
        (("--lr", "1e9"), "training will diverge"),
    ],
)
def test_settings_that_contradict_each_other_are_warned_about(
    vernier_here: Runner, words: tuple[str, ...], warning: str
) -> None:
    lines = vernier_here("train", *words, "--explain", "--json").json()["warnings"]
    assert any(warning in line for line in lines)


def test_a_line_every_0_steps_is_refused(vernier_here: Runner) -> None:
    done = vernier_here("train", "--print-every", "0", "--explain")
    assert (done.code, "must be 1 or more" in done.err) == (2, True)


def test_a_plan_shows_patience(vernier_here: Runner) -> None:
    done = vernier_here("train", "--set", "eval.patience=2", "--explain")
    assert "training ends after 2 evaluations in a row without a gain" in done.out


# --------------------------------------------------------------------------------------------------- runs and images


def test_a_run_can_be_profiled_and_a_number_of_steps_is_a_count(
    vernier_here: Runner, tiny: list[str], tmp_path: Path
) -> None:
    """`profile RUN` found no such recipe, `--steps 5` profiled step number 5 alone."""
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    run = only_run(tmp_path / "runs")
    done = vernier_here("profile", str(run), "--steps", "2", "--batch", "4", "--out", str(tmp_path / "profiled"))
    assert done.code == 0, done.err
    assert "11 to 12 are profiled" in done.err


def test_the_only_run_of_a_folder_is_opened_even_if_it_is_a_smoke_run(vernier_here: Runner, tmp_path: Path) -> None:
    assert vernier_here("train", "--smoke", "--out", str(tmp_path / "runs")).code == 0
    done = vernier_here("eval", str(tmp_path / "runs"), "--which", "all", "--max-eval-steps", "1")
    assert done.code == 0, done.err


def test_a_pattern_is_expanded_and_a_folder_taken(shapes: Path, tiny: list[str], vernier_here: Runner) -> None:
    inside = sorted((shapes / "val").glob("*/*.jpg"))
    assert find_images([shapes / "val" / "*" / "*.jpg"]) == inside
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    model = v.load(only_run(Path(tiny[3])))
    predicted: Any = model.predict(shapes / "val")
    assert len(predicted) == len(inside)
    assert len(model.predict(str(shapes / "val" / "*" / "*.jpg"))) == len(inside)


FINETUNE = ("--weights", "none", "--image-px", "32", "--set", "model.width=8", "--set", "machine.threads=1")


@pytest.fixture
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Steps are timed as on a machine on which each takes so many seconds."""
    measure = phase_times.time_phases

    def slow(step_s: float) -> None:
        def timed(config: Config) -> object:
            return replace(measure(config), head_step_s=step_s, step_s=step_s, evaluation_s=0.0)

        monkeypatch.setattr(phase_times, "time_phases", timed)

    return slow


def test_finetune_takes_the_time_that_it_was_given(
    vernier_here: Runner, shapes: Path, slow_steps: Callable[[float], None]
) -> None:
    """ "10 minutes" and "33 minutes" were in one output: the epochs were those of a faster machine."""
    slow_steps(5.0)  # 10 steps per epoch
    done = vernier_here("finetune", str(shapes), "--time", "10m", *FINETUNE, "--explain")
    assert done.code == 0, done.err
    assert "epochs         12: what should fit into 10 minutes, estimated from timed steps" in done.out
    assert "time           about 10 min, from" in done.out
    enough = vernier_here("finetune", str(shapes), "--time", "3h", *FINETUNE, "--explain")
    assert "epochs         40: enough for these images" in enough.out


def test_finetune_says_before_it_starts_if_even_few_epochs_take_longer(
    vernier_here: Runner, shapes: Path, slow_steps: Callable[[float], None]
) -> None:
    slow_steps(30.0)
    done = vernier_here("finetune", str(shapes), "--time", "10m", *FINETUNE, "--explain")
    line = next(line for line in done.out.splitlines() if line.startswith("  time"))
    assert "about 30 min" in line
    assert "LONGER than --time 10m, --time 30m allows it" in line
    given = vernier_here("finetune", str(shapes), "--epochs", "8", *FINETUNE, "--explain")
    assert "LONGER" not in given.out, "a person decided"


def test_finetune_warns_about_classes_of_a_few_images(vernier_here: Runner, tmp_path: Path, shapes: Path) -> None:
    """70 % of all images, and four of eight classes were never recognized: no line warned of it."""
    shutil.copytree(shapes / "train", tmp_path / "rare")
    folders = sorted((tmp_path / "rare").iterdir())
    for image in sorted(folders[0].iterdir())[3:]:
        image.unlink()
    words = (*FINETUNE, "--explain")
    done = vernier_here("finetune", str(tmp_path / "rare"), *words)
    assert f"fewer than 10 images of {folders[0].name}: these classes may never be recognized" in done.out
    assert "fewer than 10 images" not in vernier_here("finetune", str(shapes), *words).out


def test_an_interrupted_finetune_keeps_its_epochs_on_a_machine_that_is_faster_now(
    vernier_here: Runner, shapes: Path, slow_steps: Callable[[float], None], tmp_path: Path
) -> None:
    words = ("finetune", str(shapes), *FINETUNE, "--out", str(tmp_path / "runs"), "--set", "limits.max_time=0.1s")
    slow_steps(7.0)
    assert vernier_here(*words).code == 75
    run = only_run(tmp_path / "runs")
    slow_steps(0.001)
    assert vernier_here(*words).code in (0, 75)
    assert only_run(tmp_path / "runs") == run, "resumed"
    assert load_file(run / "config.json").recipe.schedule.epochs == 8
