"""Code of users in a whole run: the examples of docs/own-code.md, a kill in the middle, and every mistake."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vernier
from tests.conftest import REPO, TINY, Done, command, only_run
from tests.own_parts import PAGE, TRAIN
from vernier.errors import ConfigError, RunFailed
from vernier.records.events import EvalEvent, StartEvent
from vernier.store import RunDir

COMMANDS = [
    shlex.split(block.replace("\\\n", " "))[1:] for block in re.findall(r"```bash\n(vernier .*?)```", PAGE, flags=re.S)
]
SMALL = [*TINY[:-4], "--set", "machine.eval_batch=16"]
MODELS = REPO / "tests" / "compat" / "models" / "my_models.py"
POINTS = {
    "losses": "focal = mycode:focal", "transforms": "noise = mycode:noise", "metrics": "recall = mycode:macro_recall",
    "schedules": "square = mycode:square", "data_sources": "stripes = mycode:Stripes",
    "observers": "tell = mycode:tell", "optimizers": "lion = vernier_lion:Lion",
    "models": "plain = vernier_plain:FAMILY",
}  # fmt: skip
"""One entry point of every group that an outside package can use for training."""


def _train(own: Path, **options: Any) -> RunDir:
    run = vernier.train(**{**TRAIN, "out": str(own / "runs"), **options})
    return RunDir.open(run.path)


def test_the_command_of_the_page_trains_and_its_run_can_be_used(own: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here(*COMMANDS[0], *SMALL, "--max-steps", "4", "--json", "--out", "runs")
    assert done.code == 0, done.err
    run = only_run(own / "runs")
    assert (own / "told.txt").read_text() == "finished at step 4\n"
    events = RunDir.open(run).history()
    start = next(event for event in events if isinstance(event, StartEvent))
    assert {each.setting for each in start.code or ()} == {
        "data.source", "loss.kind", "augment.extra", "optim.name", "schedule.kind", "eval.metrics"
    }  # fmt: skip
    assert all(each.file == str(own / "mycode.py") and len(each.sha256) == 64 for each in start.code or ())
    assert start.metric == "macro_recall"
    assert "bit-identical resume" in (start.guarantees or ())[-1]
    result = next(event for event in events if isinstance(event, EvalEvent))
    assert 0 <= (result.figures["macro_recall"] or 0) <= 1

    evaluated = vernier_here("eval", str(run), "--json")
    assert json.loads(evaluated.out)["macro_recall"] == result.figures["macro_recall"]
    Image.new("RGB", (40, 40)).save(own / "photo.png")
    assert vernier_here("predict", str(run), "photo.png").code == 0
    assert vernier_here("export", str(run), "--out", "model.safetensors").code == 0
    assert vernier_here("report", str(run), "--out", "page.html").code == 0
    page = (own / "page.html").read_text()
    assert "mycode:focal(gamma=1.5)" in page
    assert "macro_recall" in page
    explained = vernier_here(*COMMANDS[0], *SMALL, "--explain")
    assert explained.code == 0, explained.err
    (own / "mycode.py").unlink()  # prediction needs none of it
    assert vernier_here("predict", str(run), "photo.png").code == 0


def test_the_recipe_and_the_session_of_the_page_run(own: Path, vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("train", "mine.toml", *SMALL, "--max-steps", "2", "--train-only", "--out", "runs")
    assert done.code == 0, done.err
    text = (own / "session.py").read_text()
    assert "max_steps=2" in text
    exec(compile(text, "session.py", "exec"), {"__name__": "session"})


def test_killed_three_times_and_resumed_it_ends_bit_for_bit_the_same(own: Path, vernier: Callable[..., Done]) -> None:
    """All of it is the user's, the model too: killed at a checkpoint, after an evaluation, and near the end."""
    shutil.copy(MODELS, own)
    words = [*COMMANDS[0], "--model", "my_models.py:Net(width=8)", "--global-batch", "16", "--epochs", "3"]
    words += [*SMALL[SMALL.index("data.image_px=32") - 1 :], "--set", "checkpoint.every_steps=2", "--print-every", "1"]
    reference = vernier(*words, "--out", "reference")
    assert reference.code == 0, reference.err

    def newest() -> int:
        return max((int(path.name[5:]) for path in (own / "killed").glob("*/checkpoints/step-*")), default=0)

    def evaluated() -> bool:
        return any('"eval"' in path.read_text() for path in (own / "killed").glob("*/events.jsonl"))

    for reached in (lambda: newest() >= 2, evaluated, lambda: newest() >= 14):
        child = subprocess.Popen(
            command(*words, "--out", "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while child.poll() is None and not reached():
            assert time.monotonic() < deadline, "the run does not start"
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait(timeout=60) == -signal.SIGKILL
    done = vernier(*words, "--out", "killed")
    assert done.code == 0, done.err
    starts = [each for each in RunDir.open(only_run(own / "killed")).history() if isinstance(each, StartEvent)]
    assert len(starts) == 4
    states = [sorted((only_run(own / out) / "checkpoints").glob("step-*"))[-1] for out in ("reference", "killed")]
    names = sorted(file.name for file in states[0].glob("*.safetensors"))
    assert "optimizer.safetensors" in names
    assert states[0].name == states[1].name
    for name in names:
        assert (states[0] / name).read_bytes() == (states[1] / name).read_bytes(), name


def test_changed_code_is_refused_on_resume_unless_accepted(own: Path) -> None:
    options: dict[str, Any] = {"data": "mycode:Stripes", "loss": "mycode:focal", "train_only": True}
    run = _train(own, **options, max_steps=2)
    (own / "mycode.py").write_text((own / "mycode.py").read_text() + "\n# changed\n")
    with pytest.raises(ConfigError, match="has changed since the checkpoint") as caught:
        _train(own, resume=str(run.path), max_steps=3)
    assert ("limits.changed_data", "accept") in caught.value.works
    accept = {**TRAIN["settings"], "limits.changed_data": "accept"}
    _train(own, resume=str(run.path), max_steps=3, settings=accept)
    _train(own, resume=str(run.path), max_steps=4)  # what was accepted is recorded


def test_a_package_offers_all_of_it_by_short_names_to_two_processes(own: Path, vernier: Callable[..., Done]) -> None:
    metadata = own / "site" / "own-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("".join(f"[vernier.{g}]\n{point}\n" for g, point in POINTS.items()))
    shutil.copy(REPO / "tests/model_plugin/vernier_plain.py", own)
    lion = (REPO / "docs/add-an-optimizer.md").read_text()
    (own / "vernier_lion.py").write_text(re.findall(r'```python title="vernier_lion.py"\n(.*?)```', lion, re.DOTALL)[0])
    words = ["train", "--model", "plain4", "--data", "stripes", "--loss", "focal", "--transform", "noise"]
    words += [
        "--optimizer",
        "lion",
        "--lr",
        "0.001",
        "--schedule",
        "square",
        "--metric",
        "recall",
        "--observer",
        "tell",
    ]
    words += ["--set", "optim.nesterov=false", "--set", "eval.best=recall", "--set", "machine.threads=1"]
    environment = {"PYTHONPATH": f"{own / 'site'}:{own}"}
    done = vernier(*words, "--global-batch", "16", "--procs", "2", "--max-steps", "2", "--out", "runs", env=environment)
    assert done.code == 0, done.err
    start, *_ = RunDir.open(only_run(own / "runs")).history()
    assert isinstance(start, StartEvent)
    recorded = {(each.setting, each.reference): Path(each.file).name for each in start.code or ()}
    assert recorded == {
        ("data.source", "stripes"): "mycode.py", ("loss.kind", "focal"): "mycode.py",
        ("augment.extra", "noise"): "mycode.py", ("schedule.kind", "square"): "mycode.py",
        ("eval.metrics", "recall"): "mycode.py",
    }  # fmt: skip
    assert start.metric == "recall"
    assert (own / "told.txt").read_text().count("\n") == 1  # the first process alone has observers
    with pytest.raises(ConfigError, match="other processes cannot import") as caught:
        _train(own, loss=lambda logits, labels: logits.mean(), procs=2)
    assert "loss.kind" in caught.value.given


def test_a_trained_model_is_evaluated_on_an_object_with_samples(own: Path, vernier_here: Callable[..., Done]) -> None:
    run = _train(own, data="mycode:Stripes(size=48)", max_steps=2, train_only=True)
    by_name = json.loads(vernier_here("eval", str(run.path), "--data", "mycode:Stripes(size=30)", "--json").out)
    from mycode import Stripes  # type: ignore[import-not-found]

    model = vernier.load(run.path)
    for data in ({"val": Stripes(30, split="val")}, "mycode:Stripes(size=30)"):
        result = model.evaluate(data=data)
        assert (result.samples, result.loss) == (10, by_name["loss"])
    assert vernier.evaluate(run.path, data=Stripes(30, split="val"), split="val", quiet=True).samples > 0
    with pytest.raises((ConfigError, RunFailed), match="only the Python session that made this object has it"):
        vernier.evaluate(run.path, data=Stripes(30), procs=2, quiet=True)


def test_an_observer_ends_a_run_which_the_same_call_continues(own: Path) -> None:
    """As the page says: a signal ends it as Ctrl-C does."""

    def stop(event: Any) -> None:
        if event.kind == "eval":
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"data": "mycode:Stripes(size=48)", "epochs": 2}
    with pytest.raises(vernier.Interrupted) as stopped:
        _train(own, **options, observers=[stop])
    assert stopped.value.path is not None
    run = _train(own, **options)
    assert run.path == stopped.value.path
    first, second = (event for event in run.history() if isinstance(event, StartEvent))
    assert first.resumed_from is None
    assert second.resumed_from


def test_exact_reduction_gives_the_same_weights_for_two_processes(own: Path, vernier: Callable[..., Done]) -> None:
    words = [*COMMANDS[0], *SMALL, "--max-steps", "2", "--train-only", "--set", "machine.reduction=exact"]
    weights = []
    for procs in ("1", "2"):
        done = vernier(*words, "--procs", procs, "--out", f"runs{procs}")
        assert done.code == 0, done.err
        newest = sorted((only_run(own / f"runs{procs}") / "checkpoints").glob("step-*"))[-1]
        weights.append((newest / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("option", "reference", "why"),
    [
        ("loss", "wrong:list_of_losses", r"wrong\.py, line 6.*tensor \[16\]; a loss is one number"),
        ("loss", "wrong:number", r"wrong\.py, line 7.*returned float"),
        ("loss", "wrong:detached", r"wrong\.py, line 8.*without a gradient"),
        ("loss", "wrong:infinite", r"The loss .*wrong\.py, line 9.*became (inf|-inf|nan) at step 1"),
        ("loss", "wrong:raises", r"raised KeyError: .*\(wrong\.py, line 10\)"),
        ("loss", "wrong:Weighted", "only a model can have"),
        ("loss", "wrong:missing", "has no missing"),
        ("transforms", "wrong:cut", r"wrong\.py, line 16.*uint8 \[8, 8, 3\]"),
        ("transforms", "wrong:floats", r"wrong\.py, line 17.*float64"),
        ("transforms", "wrong:forgets", r"wrong\.py, line 18.*NoneType"),
        ("metrics", "wrong:two", r"wrong\.py, line 19.*a metric is one number"),
        ("metrics", "wrong:nan", r"wrong\.py, line 20.*a finite number"),
        ("schedule", "wrong:negative", r"wrong\.py, line 21.*returned -1\.0 at progress"),
        ("optimizer", "wrong:no_optimizer", "made int, which is no torch.optim.Optimizer"),
        ("optimizer", "wrong:Fails", r"Code of your own raised ZeroDivisionError: .*wrong\.py, line \d+"),
        ("optimizer", "wrong:NoDecay", "has no weight decay"),
        ("optimizer", "torch.optim:LBFGS", "per-parameter options"),
        ("optimizer", "torch.optim:Adam(beta=1)", "unexpected keyword argument 'beta'"),
        ("data", "wrong:Strange(kind='label')", r"wrong\.py, line 25.*gave class 3 .* from 0 to 2"),
        ("data", "wrong:Strange(kind='text')", "gave class 'a' for sample"),
        ("data", "wrong:Strange(kind='normalized')", "gave float64 .* not normalized"),
        ("data", "wrong:Strange(kind='alone')", "an image and its target"),
        ("data", "wrong:Strange(kind='channels')", r"\[9, 9, 2\]"),
        ("data", "wrong:Strange(kind='length')", "had 48 samples at first and has 49 now"),
        ("data", "wrong:Strange(kind='bug')", r"raised AttributeError: .*wrong\.py, line \d+"),
        ("data", "wrong:no_set", "list, which is no data set"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_line(own: Path, option: str, reference: str, why: str) -> None:
    several = option in ("transforms", "metrics")
    options: dict[str, Any] = {"data": "mycode:Stripes(size=48)", option: [reference] if several else reference}
    with pytest.raises((ConfigError, RunFailed), match=re.compile(why, re.DOTALL)):
        _train(own, **options, epochs=1)


def test_after_a_mistake_the_run_continues_from_its_last_checkpoint(own: Path) -> None:
    options: dict[str, Any] = {"data": "mycode:Stripes(size=48)", "train_only": True, "loss": "late.py:late"}
    late = "def late(logits, labels, calls=[]):\n    calls.append(1)\n    assert len(calls) < 4, 'now'\n"
    (own / "late.py").write_text(f"{late}    return logits.square().mean()\n")
    settings = {**TRAIN["settings"], "checkpoint.every_steps": 1}
    with pytest.raises(RunFailed, match=r"AssertionError: now \(late\.py, line 3\)"):
        _train(own, **options, epochs=2, settings=settings)
    (own / "late.py").write_text("def late(logits, labels):\n    return logits.square().mean()\n")
    run = _train(own, **options, epochs=2, settings={**settings, "limits.changed_data": "accept"})
    assert len(list((own / "runs").iterdir())) == 1
    assert [e.resumed_from for e in run.history() if isinstance(e, StartEvent)] == [None, 3]


def test_torch_data_sets_and_detectors(own: Path) -> None:
    images = torch.rand(48, 3, 36, 36)

    class Tensors(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        classes = ("a", "b")

        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return images[index], index % 2

    run = _train(own, data=Tensors(), max_steps=2)
    start = next(event for event in run.history() if isinstance(event, StartEvent))
    assert (start.train_samples, start.val_samples) == (43, 5)  # data.val_share

    class Boxes(Tensors):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, object]:  # type: ignore[override]
            return images[index], {"boxes": [[4, 4, 20, 30]], "classes": [index % 2]}

    small: dict[str, Any] = {"data.image_px": 96, "data.eval_px": 96, "data.eval_short_side_px": 96, "model.width": 16,
             "machine.threads": 1}  # fmt: skip
    run = _train(own, recipe="ssd-shapes-quick", model=None, data=Boxes(), global_batch=8, max_steps=2, settings=small)
    assert "AP" in next(event for event in run.history() if isinstance(event, EvalEvent)).figures
