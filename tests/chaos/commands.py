"""Commands that write several files, as scenarios: what each leaves when it was killed and started again.

Exported files have times in their metadata, so their tensors are compared.
"""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file

from tests.tiny_training import run_training, tiny_config
from vernier.config import override
from vernier.lab.records.bench import BenchResult, read_bench
from vernier.lab.study.files import StudyDir
from vernier.records.codec import encode
from vernier.store import find_runs

from .results import Result, finished_runs, training_result
from .scenarios import OFTEN, Data, Scenario, settings
from .traced_commands import make_mirror

MOMENTS = ("starting", "starting", "writing", "next file")
SMALL = settings(model__width="8", machine__threads="1", machine__eval_batch="32")
_RESULT_FILES = ("model.safetensors", "model_card.md", "finetuning.json", "report.html")


def _tensors(path: Path) -> dict[str, bytes]:
    """Without the metadata, which have times."""
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}


def _finetuned(out: Path) -> Result:
    runs = finished_runs(out)
    files = [run.path / name for run in runs for name in _RESULT_FILES]
    if len(runs) != 1 or not all(file.is_file() for file in files):
        return {"finished runs": len(runs), "files": [file.name for file in files if file.is_file()]}
    return {**training_result(out), "model": _tensors(files[0]), "page": files[3].stat().st_size > 10_000}


def _train_to_export(data: Data, out: Path) -> None:
    trained = data.folder / "trained"
    if not trained.exists():
        run_training(override(tiny_config(data.folder / "images"), "limits.max_steps", 2), trained)
    shutil.copytree(trained, out / "runs")
    (out / "runs" / find_runs(trained)[0].path.name).rename(out / "runs" / "run")


def exported(out: Path) -> Result:
    model = out / "model.safetensors"
    return {"model": _tensors(model) if model.is_file() else {}, "card": (out / "model_card.md").is_file()}


def _fill_mirror(_data: Data, out: Path) -> None:
    make_mirror(out / "mirror", files=200)


def _benchmarks(out: Path) -> list[BenchResult]:
    return [read_bench(run.path) for run in find_runs(out) if run.is_bench]


def _benchmarked(out: Path) -> Result:
    orders = [[(one.configuration, one.round, one.order) for one in result.rounds] for result in _benchmarks(out)]
    return {"rounds": orders, "status": [run.status().status for run in find_runs(out)]}


def _finished_rounds(out: Path) -> Result:
    rounds = [one for result in _benchmarks(out) for one in result.rounds]
    return {f"{one.configuration}, round {one.round}": encode(one) for one in rounds}


def _studied(out: Path) -> Result:
    study = StudyDir(out / "study")
    tables = [name for name in ("all_data.csv", "aggregated_data.csv") if (study.path / name).is_file()]
    return {"repeats": sorted(str(path) for path in _finished_repeats(out)), "tables": tables}


def _finished_repeats(out: Path) -> Result:
    folders = StudyDir(out / "study").finished()
    return {str(folder.relative_to(out)): (folder / "iterations.csv").read_bytes() for folder in folders}


def _tuned(out: Path) -> Result:
    return {"machine file": (out / "machine.toml").is_file()}


def _tried(out: Path) -> Result:
    try:
        tree = json.loads((out / ".machine.toml.search.json").read_text())
    except FileNotFoundError:
        return {}
    return {setting["name"]: setting for setting in tree["settings"]}


_MEASURED = ("starting", "any time", "any time", "next file", "next file")
TUNE = "tune infer resnet8-small --batch 4 --time 3m --out {out}/machine.toml"
FINETUNE = (
    *("finetune", "{data}/images", "--out", "{out}", "--weights", "none", "--model", "resnet8-small"),
    *("--image-px", "32", "--epochs", "2", "--global-batch", "16", *SMALL, *OFTEN),
)
COMMANDS = [
    Scenario(
        name="finetune",
        kills=120,
        words=FINETUNE,
        outcome=_finetuned,
        is_training=False,
        moments=(*MOMENTS, "any time", "any time", "exporting", "page"),
    ),
    Scenario(
        name="export",
        kills=300,
        words=("export", "{out}/runs/run", "--out", "{out}/model.safetensors"),
        fill=_train_to_export,
        outcome=exported,
        is_training=False,
        moments=MOMENTS,
    ),
    Scenario(
        name="data get",
        kills=120,
        words=("data", "get", "cifar10", "--out", "{out}/set", "--mirror", "file://{out}/mirror"),
        fill=_fill_mirror,
        is_training=False,
        moments=MOMENTS,
    ),
    Scenario(
        name="data prepare, raw",
        kills=150,
        words=("data", "prepare", "folder", "{data}/images", "{out}/raw", "--format", "raw"),
        is_training=False,
        moments=MOMENTS,
    ),
    Scenario(
        name="bench",
        kills=24,
        words=("bench", "train", "resnet8-small", "--repeats", "2", "--steps", "3", "--batch", "2", "--out", "{out}"),
        outcome=_benchmarked,
        finished=_finished_rounds,
        is_training=False,
        moments=_MEASURED,
    ),
    Scenario(
        name="study run",
        kills=80,
        words=(
            *("study", "run", "--workload", "sgemm", "--iterations", "3", "--repeats", "2", "--virtual", "2"),
            *("--pause", "0s", "--kernels", "0", "--out", "{out}/study"),
        ),
        outcome=_studied,
        finished=_finished_repeats,
        is_training=False,
        moments=_MEASURED,
    ),
    Scenario(
        name="tune",
        kills=6,
        words=(*TUNE.split(), *settings(machine__threads="1", machine__mode="eager")),
        outcome=_tuned,
        finished=_tried,
        is_training=False,
        moments=_MEASURED,
    ),
]
