"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured."""

# Made by `make pages` from the requests in src/vernier/requests: edit those, not this file.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import nn

from vernier.api.catalog import ModelRow
from vernier.api.data import Inspection
from vernier.api.finetuning import FinetunedRun as FinetunedRun
from vernier.api.models import Export as Export
from vernier.api.models import Model as Model
from vernier.api.models import Prediction as Prediction
from vernier.api.models import predict as predict
from vernier.api.reports import Converted
from vernier.api.runs import Events as Events
from vernier.api.runs import Records
from vernier.api.runs import Result as Result
from vernier.api.runs import Run as Run
from vernier.api.runs import open_run as open_run
from vernier.api.wording import Interrupted as Interrupted
from vernier.data.preparing.packing import PackedSplit
from vernier.data.preparing.verify import VerifyResult
from vernier.errors import ConfigError as ConfigError
from vernier.errors import RunFailed as RunFailed
from vernier.lab.api.benchmarks import Benchmark as Benchmark
from vernier.lab.api.benchmarks import LoaderBenchmark
from vernier.lab.api.benchmarks import bench as bench
from vernier.lab.api.comparisons import Comparison as Comparison
from vernier.lab.api.planning import ScalingPlan, SubmittableJob
from vernier.lab.api.profiling import Profile
from vernier.lab.api.studies import MeasuredStudy, MergedStudy
from vernier.lab.api.studies import Study as Study
from vernier.lab.api.studies import study as study
from vernier.lab.api.tuning import Tuning as Tuning
from vernier.lab.api.tuning import tune as tune
from vernier.lab.machine.doctor import DevicesPage, Examination
from vernier.lab.study.design import DesignAnswer
from vernier.measure.explain import Explanation
from vernier.recipes import RecipeRow
from vernier.records.run import EvaluationReport
from vernier.records.study import Baseline, CheckResult
from vernier.report.runs import RunRow
from vernier.requests.values import StrPath
from vernier.store.cleaning import Plan

__version__: str
__all__ = [
    "Benchmark",
    "Comparison",
    "ConfigError",
    "Events",
    "Export",
    "FinetunedRun",
    "Interrupted",
    "Model",
    "Prediction",
    "Result",
    "Run",
    "RunFailed",
    "Study",
    "Tuning",
    "__version__",
    "bench",
    "bench_data",
    "bench_infer",
    "bench_scaling",
    "bench_train",
    "clean_runs",
    "compare",
    "convert",
    "create_model",
    "data_get",
    "data_inspect",
    "data_make",
    "data_prepare",
    "data_verify",
    "doctor",
    "evaluate",
    "explain",
    "export",
    "finetune",
    "list_models",
    "list_recipes",
    "list_runs",
    "load",
    "open_run",
    "plan",
    "predict",
    "profile_infer",
    "profile_train",
    "report",
    "study",
    "study_analyze",
    "study_baseline",
    "study_check",
    "study_design",
    "study_merge",
    "study_run",
    "submit",
    "train",
    "tune",
    "tune_infer",
    "tune_train",
]

def bench_train(
    recipe: StrPath | None = None,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    repeats: int = 5,
    max_time: str = "20s",
    steps: int | None = None,
    target_width: float | str | None = None,
    seed: int = 0,
    out: StrPath = "runs",
    batch: int | Sequence[int] = (),
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | Sequence[Literal["fp32", "tf32", "bf16", "fp16"]] = (),
    mode: Literal["eager", "compile", "trace"] | Sequence[Literal["eager", "compile", "trace"]] = (),
    against: str | None = None,
    tolerance: float | str = "1%",
    memory_limit: float | None = None,
    raport: StrPath | None = None,
    dllogger: StrPath | None = None,
    procs: str | Sequence[str] = (),
) -> Benchmark: ...
def bench_infer(
    recipe: StrPath | None = None,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    repeats: int = 5,
    max_time: str = "20s",
    steps: int | None = None,
    target_width: float | str | None = None,
    seed: int = 0,
    out: StrPath = "runs",
    batch: int | Sequence[int] = (),
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | Sequence[Literal["fp32", "tf32", "bf16", "fp16"]] = (),
    mode: Literal["eager", "compile", "trace"] | Sequence[Literal["eager", "compile", "trace"]] = (),
    against: str | None = None,
    tolerance: float | str = "1%",
    memory_limit: float | None = None,
    raport: StrPath | None = None,
    dllogger: StrPath | None = None,
    engine: Literal["torch", "onnxruntime", "openvino", "auto"]
    | Sequence[Literal["torch", "onnxruntime", "openvino", "auto"]] = (),
    int8: bool = False,
    scenarios: Literal["offline", "single-stream", "server"]
    | Sequence[Literal["offline", "single-stream", "server"]] = ("offline",),
    loads: float | str | Sequence[float | str] = ("50%", "80%"),
    arrival_rate: float | None = None,
) -> Benchmark: ...
def bench_scaling(
    recipe: StrPath | None = None,
    *,
    mode: Literal["eager", "compile", "trace"] | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    repeats: int = 5,
    max_time: str = "20s",
    steps: int | None = None,
    target_width: float | str | None = None,
    seed: int = 0,
    out: StrPath = "runs",
    procs: str | Sequence[str],
    batch: int | None = None,
    strong: bool = False,
    apart: bool = False,
) -> Benchmark: ...
def bench_data(
    recipe: StrPath | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    data: StrPath,
    against: Literal["compiled"] | Sequence[Literal["compiled"]] = (),
    workers: int | None = None,
    rounds: int = 10,
    images: int = 500,
    image_px: int | None = None,
    shard_cache_gb: float | None = None,
) -> LoaderBenchmark: ...
def tune_train(
    recipe: StrPath | None = None,
    *,
    procs: int | None = None,
    quiet: bool = False,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    settings: Mapping[str, object] | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    time: str = "10m",
    out: StrPath = "machine.toml",
    overwrite: bool = False,
    seed: int = 0,
    batch: int | None = None,
    allow_split: bool = False,
) -> Tuning: ...
def tune_infer(
    recipe: StrPath | None = None,
    *,
    quiet: bool = False,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    settings: Mapping[str, object] | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    time: str = "10m",
    out: StrPath = "machine.toml",
    overwrite: bool = False,
    seed: int = 0,
    batch: int | None = None,
) -> Tuning: ...
def profile_train(
    recipe: StrPath | None = None,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    range: str = "11:15",
    out: StrPath = "runs",
    batch: int | None = None,
) -> Profile: ...
def profile_infer(
    recipe: StrPath | None = None,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    data: StrPath | None = None,
    model: str | None = None,
    range: str = "11:15",
    out: StrPath = "runs",
    batch: int | None = None,
) -> Profile: ...
def compare(
    a: StrPath | Sequence[StrPath],
    b: StrPath | Sequence[StrPath],
    *,
    tolerance: float | str = "1%",
    different_work: bool = False,
    single_runs: bool = False,
) -> Comparison: ...
def plan(
    recipe: str,
    *,
    settings: Mapping[str, object] | None = None,
    bench: str,
    devices: str = "8..4096",
    batch: int | None = None,
    weak: bool = False,
    watts: float | None = None,
    convert: bool = False,
    network: Literal[
        "ethernet-10g", "ethernet-100g", "dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "hls-1"
    ] = "ethernet-100g",
    per_host: int | None = None,
    link_gb_s: float | None = None,
    host_gb_s: float | None = None,
    host_us: float | None = None,
    input_img_s: float | None = None,
    spread: float | str | None = None,
) -> ScalingPlan: ...
def submit(
    recipe: str,
    *,
    settings: Mapping[str, object] | None = None,
    to: Literal["slurm", "kubernetes", "ssh"],
    machine: StrPath,
    out: StrPath | None = None,
) -> SubmittableJob: ...
def study_run(
    *,
    quiet: bool = False,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    workload: Literal["resnet50", "sgemm", "bandwidth", "shapes"] = "resnet50",
    iterations: int = 500,
    repeats: int = 5,
    batch: int = 64,
    out: StrPath | None = None,
    allow_slow: bool = False,
    per: Literal["core", "socket"] = "core",
    virtual: int = 0,
    slow: Mapping[str, str] | str | None = None,
    pause: str = "5s",
    kernels: int = 3,
    seed: int = 0,
) -> MeasuredStudy: ...
def study_analyze(
    sources: StrPath | Sequence[StrPath],
    *,
    columns: Mapping[str, str] | str | None = None,
    units: Mapping[str, str] | str | None = None,
    matter: float | str = "1%",
    drop_duplicates: bool = False,
) -> Study: ...
def study_baseline(
    sources: StrPath | Sequence[StrPath],
    *,
    columns: Mapping[str, str] | str | None = None,
    units: Mapping[str, str] | str | None = None,
    out: StrPath,
) -> Baseline: ...
def study_check(
    sources: StrPath | Sequence[StrPath],
    *,
    columns: Mapping[str, str] | str | None = None,
    units: Mapping[str, str] | str | None = None,
    baseline: StrPath,
    matter: float | str = "1%",
) -> CheckResult: ...
def study_merge(
    sources: StrPath | Sequence[StrPath],
    *,
    out: StrPath,
) -> MergedStudy: ...
def study_design(
    *,
    columns: Mapping[str, str] | str | None = None,
    units: Mapping[str, str] | str | None = None,
    devices: int = 64,
    repeats: int = 3,
    find: float | str = "3%",
    pilot: StrPath | None = None,
    spread: float | str | None = None,
    noise: float | str | None = None,
    repeat_time: str = "60s",
    per_host: int = 4,
    disturbed: float | str = "3%",
    fleets: int | None = None,
    seed: int = 0,
) -> DesignAnswer: ...
def doctor(
    *,
    device: str | None = None,
    quiet: bool = False,
    probe: bool = True,
    time: str = "10s",
    test_devices: bool = False,
) -> Examination | DevicesPage: ...
def train(
    recipe: StrPath | None = None,
    *,
    on_divergence: Literal["stop", "rollback"] | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    workers: int | None = None,
    procs: int | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    global_batch: int | None = None,
    seed: int | None = None,
    freeze: str | Sequence[str] = (),
    max_bad_images: str | None = None,
    max_time: str | None = None,
    out: StrPath = "runs",
    tensorboard: bool = True,
    data: StrPath | None = None,
    model: str | None = None,
    weights: StrPath | None = None,
    backbone_weights: StrPath | None = None,
    reset_head: bool = False,
    epochs: float | None = None,
    lr: float | None = None,
    max_steps: int | None = None,
    steps: int | None = None,
    max_eval_steps: int | None = None,
    train_only: bool = False,
    train_accuracy: bool = False,
    allow_slow: bool = False,
    deterministic: bool = False,
    resume: StrPath | None = None,
    config: StrPath | None = None,
    smoke: bool = False,
    checkpoints: bool = True,
    profile_steps: str | None = None,
    print_every: int | None = None,
    track: Literal["wandb", "mlflow"] | Sequence[Literal["wandb", "mlflow"]] = (),
    raport: StrPath | None = None,
    dllogger: StrPath | None = None,
) -> Run: ...
def explain(
    recipe: StrPath | None = None,
    *,
    on_divergence: Literal["stop", "rollback"] | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    workers: int | None = None,
    procs: int | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    global_batch: int | None = None,
    seed: int | None = None,
    freeze: str | Sequence[str] = (),
    max_bad_images: str | None = None,
    max_time: str | None = None,
    out: StrPath = "runs",
    tensorboard: bool = True,
    data: StrPath | None = None,
    model: str | None = None,
    weights: StrPath | None = None,
    backbone_weights: StrPath | None = None,
    reset_head: bool = False,
    epochs: float | None = None,
    lr: float | None = None,
    max_steps: int | None = None,
    steps: int | None = None,
    max_eval_steps: int | None = None,
    train_only: bool = False,
    train_accuracy: bool = False,
    allow_slow: bool = False,
    deterministic: bool = False,
    resume: StrPath | None = None,
    config: StrPath | None = None,
    smoke: bool = False,
    checkpoints: bool = True,
    profile_steps: str | None = None,
    print_every: int | None = None,
    track: Literal["wandb", "mlflow"] | Sequence[Literal["wandb", "mlflow"]] = (),
    raport: StrPath | None = None,
    dllogger: StrPath | None = None,
) -> Explanation: ...
def finetune(
    folder: StrPath,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    workers: int | None = None,
    procs: int | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    global_batch: int | None = None,
    seed: int | None = None,
    freeze: str | Sequence[str] = (),
    max_bad_images: str | None = None,
    max_time: str | None = None,
    out: StrPath = "runs",
    tensorboard: bool = True,
    task: Literal["auto", "classes", "boxes"] = "auto",
    weights: StrPath | None = None,
    model: str | None = None,
    image_px: int | None = None,
    time: str = "10m",
    epochs: float | None = None,
    lr: float | None = None,
    resume: StrPath | None = None,
) -> FinetunedRun: ...
def list_runs(
    folders: StrPath | Sequence[StrPath] = (),
    *,
    sort: Literal["age", "name", "size", "state", "result"] = "age",
) -> Records[RunRow]: ...
def clean_runs(
    folders: StrPath | Sequence[StrPath] = (),
    *,
    quiet: bool = False,
    what: Literal["leftovers", "empty", "smoke", "checkpoints", "traces"]
    | Sequence[Literal["leftovers", "empty", "smoke", "checkpoints", "traces"]] = (
        "leftovers",
        "empty",
        "smoke",
        "checkpoints",
    ),
    older_than: str | None = None,
    yes: bool = False,
) -> Plan: ...
def load(
    source: StrPath,
    *,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    engine: Literal["torch", "onnxruntime", "openvino", "auto"] | None = None,
    int8: bool = False,
    device: str | None = None,
    model: str | None = None,
    classes: StrPath | Sequence[StrPath] = (),
    which: str = "latest",
    ema: bool | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
) -> Model: ...
def create_model(
    name: str,
    *,
    settings: Mapping[str, object] | None = None,
    weights: StrPath | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
) -> nn.Module: ...
def evaluate(
    source: StrPath,
    data: StrPath | None = None,
    *,
    quiet: bool = False,
    workers: int | None = None,
    procs: int | None = None,
    settings: Mapping[str, object] | None = None,
    machine: StrPath | None = None,
    mode: Literal["eager", "compile", "trace"] | None = None,
    engine: Literal["torch", "onnxruntime", "openvino", "auto"] | None = None,
    int8: bool = False,
    device: str | None = None,
    model: str | None = None,
    classes: StrPath | Sequence[StrPath] = (),
    which: str = "latest",
    ema: bool | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None,
    split: Literal["val", "test", "train"] | None = None,
    classes_by_number: bool = False,
    flip_tta: bool = False,
    max_eval_steps: int | None = None,
    out: StrPath | None = None,
    tensorboard: bool = True,
) -> Result[EvaluationReport]: ...
def export(
    source: StrPath,
    out: StrPath | None = None,
    *,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
    model: str | None = None,
    classes: StrPath | Sequence[StrPath] = (),
    which: str = "latest",
    ema: bool | None = None,
    format: Literal["safetensors", "torchvision", "onnx", "torch-export"] = "safetensors",
    normalized_input: bool = False,
    data: StrPath | None = None,
    card: bool = True,
) -> Export: ...
def report(
    runs: StrPath | Sequence[StrPath],
    *,
    out: StrPath | None = None,
) -> Path: ...
def convert(
    run: StrPath,
    *,
    to: Literal["raport", "dllogger", "mllog", "study", "tensorboard"],
    out: StrPath,
) -> Converted: ...
def list_recipes(
    *,
    device_hours: str | None = None,
    convert: bool = False,
) -> Records[RecipeRow]: ...
def list_models(
    pattern: str = "*",
) -> Records[ModelRow]: ...
def data_make(
    name: Literal["shapes"] = "shapes",
    *,
    out: StrPath | None = None,
    kind: Literal["classify", "detect"] = "classify",
    train: int = 8000,
    val: int = 1000,
    size_px: int | None = None,
    seed: int = 0,
) -> Path: ...
def data_prepare(
    kind: Literal["folder", "imagenet", "coco", "tfrecord"],
    paths: StrPath | Sequence[StrPath],
    *,
    workers: int | None = None,
    val_split: float | str = "10%",
    quiet: bool = False,
    format: Literal["folders", "shards", "raw", "tfrecord"] = "folders",
    val_labels: StrPath | None = None,
    short_side_px: int = 256,
    shard_mb: int = 512,
    restarts: bool = True,
    files: tuple[int, int] | None = None,
    expect: tuple[int, int, int] | None = None,
) -> tuple[PackedSplit, ...] | dict[str, int]: ...
def data_verify(
    data: StrPath,
    *,
    workers: int | None = None,
    val_split: float | str = "10%",
    quiet: bool = False,
    shard_cache_gb: float | None = None,
) -> VerifyResult: ...
def data_inspect(
    data: StrPath,
    *,
    val_split: float | str = "10%",
    quiet: bool = False,
    shard_cache_gb: float | None = None,
    sheet: StrPath | None = None,
) -> Inspection: ...
def data_get(
    name: Literal["cifar10", "fashion-mnist", "imagenette", "coco"],
    *,
    quiet: bool = False,
    out: StrPath | None = None,
    mirror: str = "",
) -> Path: ...
