"""Pages whose headings, cards and tables said something else than what ran."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Done, only_run
from tests.report.bench_results import RATE, step_row
from tests.report.page.conftest import text_of
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.lab.bench.table import whole_table
from vernier.lab.records.bench import BenchRequest, BenchResult
from vernier.measure.estimates import summarize
from vernier.records.codec import encode
from vernier.records.run import EvalResult, FinetuningRecord
from vernier.report.page.build import Page, build
from vernier.report.page.collect import collect
from vernier.report.page.identity import differences
from vernier.store import RunDir

Vernier = Callable[..., Done]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "0.1"


def page_of(*paths: Path) -> Page:
    return build(collect(paths))


def section(page: Page, name: str) -> str:
    return str(next(s.html for s in page.sections if s.name == name))


def smoke_run(out: Path, name: str) -> Path:
    """A run that is marked as a try-out of the settings."""
    path = write_run(out, name, [0.1] * 20)
    config = json.loads((path / "config.json").read_text())
    config.setdefault("limits", {})["smoke"] = True
    (path / "config.json").write_text(json.dumps(config))
    return path


def foreign_logs(real_data: Callable[[str], Path]) -> list[Path]:
    """A ResNet-50 log of NVIDIA's and logs of MLPerf's SSD."""
    ssd = real_data("mlperf-v0.7") / "dgxa100_ngc20.06_pytorch" / "ssd"
    return [real_data("dllogger") / "raport.json", ssd / "result_0.txt", ssd / "result_1.txt"]


def test_a_folder_of_runs_is_reported_without_its_smoke_runs(vernier_here: Vernier, tmp_path: Path) -> None:
    """A smoke run in runs/ stood beside real results, with its top-1 of 0 %."""
    runs = tmp_path / "runs"
    real, smoke = write_run(runs, "real", [0.1] * 20), smoke_run(runs, "try")
    done = vernier_here("report", str(runs), "-o", str(tmp_path / "page.html"), "--json")
    assert [run["path"] for run in done.json()["runs"]] == [str(real)]
    assert done.json()["smoke_left_out"] == [str(smoke)]
    assert "1 smoke run left out" in (tmp_path / "page.html").read_text()
    assert "omitted: 1 smoke run" in vernier_here("report", str(runs), "-o", str(tmp_path / "page.html")).err


def test_a_smoke_run_that_is_named_is_shown_and_marked(tmp_path: Path) -> None:
    """Nothing on the page of a smoke run said that its figures mean nothing."""
    page = page_of(smoke_run(tmp_path, "try"))
    assert "SMOKE RUN" in text_of(str(page.top))
    assert "its figures mean nothing" in text_of(section(page, "glance"))


def test_smoke_runs_are_not_compared_as_results_of_their_folder(vernier_here: Vernier, tmp_path: Path) -> None:
    """`compare runs/ baseline` counted a smoke run among the runs of its side."""
    runs = tmp_path / "runs"
    real, other = (write_run(out, "real", step_times(i, n=200)) for i, out in enumerate((runs, tmp_path / "other")))
    smoke = smoke_run(runs, "try")
    done = vernier_here("compare", str(runs), str(other), "--json")
    assert done.json()["a"]["runs"] == [str(real)]
    shutil.rmtree(real)
    refused = vernier_here("compare", str(runs), str(other))
    assert refused.code == 2
    assert f"Name one to use it all the same: {smoke}" in refused.err


def test_only_smoke_runs_in_a_folder_are_nothing_to_report_on(tmp_path: Path) -> None:
    """The smoke runs were the report."""
    smoke = smoke_run(tmp_path, "try")
    with pytest.raises(ConfigError, match=re.escape(str(smoke))):
        collect([tmp_path])


def test_the_newest_run_that_a_message_suggests_is_no_smoke_run(tmp_path: Path) -> None:
    """`runs/ is not a run directory, the newest is ...` led to a smoke run."""
    real = write_run(tmp_path, "a-real", [0.1] * 20)
    smoke_run(tmp_path, "b-try")
    with pytest.raises(ConfigError, match=re.escape(f"the newest is {real}.")):
        RunDir.open(tmp_path)


def test_the_page_is_headed_by_the_network_that_ran(vernier_here: Vernier, shapes: Path, tmp_path: Path) -> None:
    """`train torchvision-resnet50-v1 --model resnet8-small` was headed torchvision-resnet50-v1."""
    changed = ["--model", "resnet8-small", "--data", str(shapes), "--smoke", "--no-tensorboard"]
    done = vernier_here("train", "torchvision-resnet50-v1", *changed, "--out", str(tmp_path / "runs"))
    assert done.code == 0, done.err
    page = page_of(only_run(tmp_path / "runs"))
    assert re.search(r"<h1>SMOKE RUN: resnet8-small.* · 64 px · batch 8 · .*shapes</h1>", str(page.top))
    assert "train resnet8-small" in text_of(section(page, "glance"))


def test_image_size_batch_precision_torch_and_commit_are_at_a_glance() -> None:
    """They were in a clipped box at the bottom of the page, or nowhere."""
    for name, words in {
        "classifier": ("resnet8-small", "32 px", "batch 16", "fp32", "torch 2.13.0", "b2a6a81"),
        "bench-train": ("32 px", "batch 4, 8", "fp32", "torch 2.13.0", "b2a6a81"),
        "profile": ("32 px", "fp32", "torch 2.13.0", "b2a6a81"),
    }.items():
        page = page_of(GOLDEN / name)
        assert [w for w in words if w not in text_of(section(page, "glance"))] == [], name
        head = text_of(str(page.top))
        assert [w for w in words if w.removeprefix("torch ").removeprefix("batch ") not in head] == [], name


def test_a_benchmark_shows_the_batches_it_measured_and_not_the_recipes(tmp_path: Path) -> None:
    """The page of a benchmark of batches 1 and 32 said global_batch 2048."""
    run = RunDir.create(tmp_path, "bench-infer")
    config = {"recipe": {"name": "nvidia-resnet50-90e", "global_batch": 2048, "model": {"name": "resnet50"}}}
    run.write_config(config)
    result = BenchResult(rows=(step_row(1, 4.0), step_row(32, 5.0)), asked=BenchRequest(what="infer", config=config))
    run.write_bench(encode(result), "")
    page = page_of(run.path)
    assert "2048" not in section(page, "environment")
    assert "recipe.batch 1, 32" in text_of(section(page, "environment"))
    assert "batch 1, 32" in text_of(section(page, "glance"))


def test_devices_that_a_log_does_not_name_are_not_one_device(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    """MLPerf logs of a machine with 8 GPUs were shown as 1 device."""
    lines = foreign_logs(real_data)[1].read_text().splitlines()
    log = tmp_path / "result_0.txt"
    log.write_text("\n".join(line for line in lines if "init_start" not in line))  # one per process
    text = text_of(section(page_of(log), "glance"))
    assert re.search(r"not in the log [a-z ,]*devices", text)
    assert "over all devices, whose number is not in the log" in text


def test_logs_of_different_work_say_what_differs(real_data: Callable[[str], Path]) -> None:
    """A ResNet-50 log beside SSD logs: the page said that only the seed differs."""
    html = section(page_of(*foreign_logs(real_data)), "environment")
    what_ran = re.search(r'<table[^>]* id="what-ran">(.*?)</table>', html, re.DOTALL)
    assert what_ran is not None
    marked = re.findall(r'<tr class="differs"><td class="mono" data-v="([^"]+)"', what_ran[1])
    assert {"network", "batch", "data"} <= set(marked)


def test_other_systems_logs_have_rate_and_accuracy_side_by_side(real_data: Callable[[str], Path]) -> None:
    """The rows of MLPerf's logs were dashes: neither throughput nor accuracy had a column."""
    table = page_of(*foreign_logs(real_data)).figures["runs"]
    assert list(table.columns[:4]) == ["run", "top-1 %", "AP", "img/s"]
    rows = {row[0]: row for row in table.rows}
    assert rows["resnet50 raport"][1] == pytest.approx(77.53, abs=0.01)
    assert rows["ssd result_0"][2:4] == [pytest.approx(0.2333, abs=1e-4), pytest.approx(9810, rel=0.001)]


def test_figures_have_the_digits_that_their_interval_supports(tmp_path: Path) -> None:
    """A rate between 3.6 and 5.4 images per second was 4.424."""
    run = RunDir.create(tmp_path, "bench-train")
    rate = replace(RATE, value=4.424, low=3.63, high=5.393)
    run.write_config({"recipe": {"name": "x"}})
    run.write_bench(encode(BenchResult(rows=(step_row(16, 4.424, images_per_s_total=rate),))), "")
    text = text_of(section(page_of(run.path), "glance"))
    assert "throughput 4.4 img/s 95 %: 3.6 to 5.4" in text


def test_top_5_of_ten_classes_is_no_headline() -> None:
    """Half of the classes in five guesses looked like a result."""
    assert "top-5" not in text_of(section(page_of(GOLDEN / "classifier"), "glance"))


def finetuned(tmp_path: Path) -> Path:
    """A fine-tuning whose exported weights have another result, 80 %, than the last ones."""
    path = write_run(tmp_path / "runs", "tuned", [0.1] * 40, steps_per_epoch=20)
    held_out = EvalResult(samples=100, figures={"top1": 80.0})
    RunDir(path).write_finetuning(encode(FinetuningRecord(held_out=held_out)))
    return path


def test_the_headline_of_a_fine_tuning_is_that_of_the_exported_model(tmp_path: Path) -> None:
    """It showed the last weights, AP 0.259, beside a model file of 0.266."""
    text = text_of(section(page_of(finetuned(tmp_path)), "glance"))
    assert re.search(r"top-1 of the exported model\s*80", text), text


def test_a_run_that_is_given_twice_is_on_the_page_once(tmp_path: Path) -> None:
    path = write_run(tmp_path / "runs", "one", [0.1] * 20)
    assert len(collect([path, path.parent / ".." / "runs" / path.name, path.parent])) == 1


def test_a_report_is_not_written_into_a_pdf(vernier_here: Vernier, tmp_path: Path) -> None:
    """It was HTML in a file called x.pdf."""
    path = write_run(tmp_path / "runs", "one", [0.1] * 20)
    refused = vernier_here("report", str(path), "-o", str(tmp_path / "x.pdf"))
    assert refused.code == 2
    assert "x.html" in refused.err
    assert not (tmp_path / "x.pdf").exists()


def test_labels_of_runs_show_what_was_changed_and_not_what_follows_from_it() -> None:
    """`lr 0.05, epochs 6, seed 1, warmup_epochs 1, max_steps 60`, cut in the legend: two runs looked the same."""
    trees = [
        {"recipe": {"optim": {"lr": lr}, "schedule": {"epochs": epochs, "warmup_epochs": epochs / 6}, "seed": seed}}
        for lr, epochs, seed in ((0.05, 6, 1), (0.05, 6, 2), (0.1, 6, 1), (0.05, 12, 1))
    ]
    assert differences(trees) == [
        "lr 0.05, epochs 6, seed 1",
        "lr 0.05, epochs 6, seed 2",
        "lr 0.1, epochs 6, seed 1",
        "lr 0.05, epochs 12, seed 1",
    ]


def test_one_sample_has_no_percentiles(tmp_path: Path) -> None:
    """p50 = p95 = p99 = 549 ms, from one step."""

    def percentiles_of(steps: int) -> list[object]:
        summary = summarize([0.5 + 0.001 * i for i in range(steps)], unit="s", of="step")
        (row,) = whole_table([replace(step_row(1, 2.0), step_s=summary)])
        return [
            name
            for name, text in zip(("p5", "p50", "p95", "p99"), row["step ms p5/50/95/99"].split("/"), strict=True)
            if text != "-"
        ]

    assert percentiles_of(1) == ["p50"], "the step itself"
    assert percentiles_of(19) == ["p50"], "a 95th percentile has one step in twenty beyond it"
    assert percentiles_of(99) == ["p5", "p50", "p95"]
    assert percentiles_of(100) == ["p5", "p50", "p95", "p99"]
